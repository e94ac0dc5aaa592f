#!/usr/bin/env python3
"""Checks the rules of the tree that no compiler knows; a line `file:line: message` a finding.

In: the source tree (first argument, or the parent of this file's folder); in a checkout, the files
that git tracks. Out: findings on standard output, exit status 1 if there are any. Reads text only:
it runs no compiler and changes nothing. The rules and their reasons are in CONTRIBUTING.md.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

COLUMNS = 100
FUNCTION_LINES = 70
SKIPPED_FOLDERS = re.compile(r"^(\.(?!ci$).*|build|build-.*|__pycache__|corpus|vectors)$")

# Which folders of src each folder of src may include, besides itself.
FOLDERS = {
    "base": set(),
    "bundle": {"base", "backend"},
    "codec": {"base", "backend"},
    "backend": {"base", "codec"},
    "frame": {"base", "bundle", "codec"},
    "checkpoint": {"base", "bundle", "codec"},
    "delta": {"base", "backend", "bundle", "codec", "frame", "checkpoint"},
    "ship": {"base"},
    "publish": {"base", "backend", "bundle", "codec", "checkpoint", "frame", "delta", "ship"},
    "subscribe": {"base", "backend", "bundle", "codec", "checkpoint", "frame", "delta", "ship"},
}
# Single includes that cross those lines, each with its reason.
CROSSINGS = {
    ("src/base/context.c", "backend/backend.h"): "a context owns its backend",
    ("src/base/context.c", "backend/device.h"): "and its device",
}
# Headers of other people that only these folders may see.
SYSTEMS = (
    ("CUDA", r"(cuda\w*\.h|nv|cub/|cooperative_groups)",
     ("src/backend/cuda", "tests/gpu", "bench/cuda")),
)
PUBLIC_ONLY = ("cli", "demo", "examples", "bench")

TEXT_SUFFIXES = (".c", ".h", ".cu", ".cuh", ".py", ".sh", ".cmake", ".md", ".txt", ".in", ".1")
CODE_SUFFIXES = (".c", ".h", ".cu", ".cuh")
SCRIPTS = ("run", ".ci/run")

OUR_WORD = re.compile(r"(?<![\w-])((?:XORCAST|xorcast|XCI|xci)_\w+)(\.\.\.|\*|\{|<)?")
NOT_IN_LIBRARY = re.compile(
    r"(?<!\w)(exit|_exit|_Exit|quick_exit|abort|printf|vprintf|puts|putchar|perror)\s*\(")
INVISIBLE = re.compile("[\u00a0\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
CODE_LIKE = re.compile(
    r"^(return\b.*;|[\w\->\[\].* ]+\s[|&^+*/-]?=\s.*;|[A-Za-z_]\w*\(.*\);|"
    r"(if|for|while|switch) \(.*[{;]|#\s*(include|define|if|endif)\b.*|\} else .*\{)$")

findings = []


def find(path, line, message):
    findings.append((str(path), line, message))


class Source:
    """A text file, with its comments and its code apart. `code` and `comments` have one entry a
    line; in `bare` the strings of the code are empty too."""

    def __init__(self, root, path):
        self.path = path
        raw = (root / path).read_bytes()
        self.text = raw.decode("utf-8", errors="replace")
        self.lines = self.text.split("\n")
        self.is_c = path.suffix in CODE_SUFFIXES
        self.is_script = path.suffix in (".py", ".sh") or str(path) in SCRIPTS
        self.is_cmake = path.suffix == ".cmake" or path.name == "CMakeLists.txt"
        if self.is_c:
            code, bare, comments = split_c(self.text)
        elif self.is_script or self.is_cmake:
            code, comments = split_hash(self.text)
            bare = code
        else:
            code, bare, comments = self.text, self.text, ""
        self.code, self.bare = code.split("\n"), bare.split("\n")
        self.comments = comments.split("\n")


C_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def blank(text):
    """The same lines, without anything on them."""
    return re.sub(r"[^\n]", " ", text)


def split_c(text):
    code, bare, comments, at = [], [], [], 0
    for match in C_TOKEN.finditer(text):
        between, token = text[at:match.start()], match[0]
        at = match.end()
        code.append(between)
        bare.append(between)
        comments.append(blank(between))
        if token.startswith("/"):
            code.append(blank(token))
            bare.append(blank(token))
            comments.append(token)
        else:
            code.append(token)
            bare.append(token[0] + blank(token[1:-1]) + token[-1])
            comments.append(blank(token))
    for part, rest in ((code, text[at:]), (bare, text[at:]), (comments, blank(text[at:]))):
        part.append(rest)
    return "".join(code), "".join(bare), "".join(comments)


def split_hash(text):
    """Comments of scripts: lines whose first character is #, which is never wrong in strings."""
    code, comments = [], []
    for line in text.split("\n"):
        is_comment = line.lstrip().startswith("#") and not line.startswith("#!")
        code.append("" if is_comment else line)
        comments.append(line if is_comment else "")
    return "\n".join(code), "\n".join(comments)


def tracked(root):
    """The files that git tracks; none where there is no checkout or no git."""
    if not (root / ".git").exists() or shutil.which("git") is None:
        return []
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True,
                            check=False).stdout
    return [name for name in map(os.fsdecode, listed.split(b"\0")) if (root / name).is_file()]


def there(root):
    """All files, but those in folders of no interest."""
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not SKIPPED_FOLDERS.match(f)]
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in files)


def load(root):
    paths = [pathlib.Path(name) for name in sorted(tracked(root) or there(root))]
    return [Source(root, path) for path in paths
            if (path.suffix in TEXT_SUFFIXES or str(path) in SCRIPTS) and
            not any(SKIPPED_FOLDERS.match(folder) for folder in path.parts[:-1])]


# ---- Rules about one file -----------------------------------------------------------------------


def check_lines(source):
    code = source.is_c or source.is_script or source.is_cmake
    for number, line in enumerate(source.lines, 1):
        if (source.is_c or source.is_script) and len(line) > COLUMNS:
            find(source.path, number, f"{len(line)} columns; {COLUMNS} is the most")
        if code and line != line.rstrip():
            find(source.path, number, "blanks at the end of the line")
        if code and "\t" in line:
            find(source.path, number, "a tab; indent with blanks")
        if code and not line.isascii():
            odd = next(c for c in line if not c.isascii())
            find(source.path, number, f"U+{ord(odd):04X} is not ASCII; write an escape or a word")
        if INVISIBLE.search(line) or "\ufffd" in line:
            find(source.path, number, "an invisible character or bytes that are not UTF-8")
        if code and source.path.name != "tidy.py" and re.search(r"\b(TODO|FIXME|HACK)\b", line):
            find(source.path, number, "unfinished work; do it or file an issue")
    if source.text and not source.text.endswith("\n"):
        find(source.path, len(source.lines), "the last line does not end")


def check_opening(source, headers):
    """The first paragraph tells what the file is. A .c file may leave that to the .h beside it."""
    text = re.sub(r"^#![^\n]*\n", "", source.text)
    if source.is_c:
        opening = re.match(r"/\*(.*?)\*/", text, re.S)
    elif source.path.suffix == ".py":
        opening = re.match(r'(?:#[^\n]*\n|\n)*"""(.*?)"""', text, re.S)
    elif source.is_script or source.is_cmake:
        opening = re.match(r"((?:#[^\n]*\n)+)", text)
    else:
        return
    words = " ".join(opening[1].split()) if opening else ""
    header = source.path.suffix == ".c" and source.path.with_suffix(".h") in headers
    if len(words) < (1 if header else 40):
        find(source.path, 1, "no opening paragraph: what the file does, owns and does not own")


def check_comments(source):
    """Code that was commented out: whoever needs it finds it in the history."""
    if not source.is_c:
        return
    for number, line in enumerate(source.comments, 1):
        text = re.sub(r"^\s*(/\*|\*/|\*|//)?\s*|\s*\*/\s*$", "", line)
        if CODE_LIKE.match(text):
            find(source.path, number, "looks like code in a comment; delete it or say it in words")


def check_calls(source):
    if source.path.parts[0] != "src":
        return
    for number, line in enumerate(source.bare, 1):
        match = NOT_IN_LIBRARY.search(line)
        if match:
            find(source.path, number, f"{match[1]} in the library; return a status or log")


def check_functions(source):
    """Bodies that begin at the outermost level after a parameter list."""
    signature = re.compile(r"\)\s*(__attribute__\s*\(\(.*\)\)\s*)?$")
    text = "\n".join("" if line.lstrip().startswith("#") else line for line in source.bare)
    text = re.sub(r'extern\s+"[^"]*"\s*\{', lambda m: blank(m[0]), text)
    depth, begin, statement = 0, None, 0
    for at, character in enumerate(text):
        if character == "{":
            before = text[statement:at]
            if depth == 0 and signature.search(before):
                begin = at - len(before.lstrip())
            depth += 1
        elif character == "}" and depth > 0:
            depth -= 1
            if depth == 0 and begin is not None:
                check_function(source, text.count("\n", 0, begin) + 1, text.count("\n", 0, at) + 1)
                begin = None
        if depth == 0 and character in ";}":
            statement = at + 1


def check_function(source, first, last):
    lines = last - first + 1
    if lines <= FUNCTION_LINES:
        return
    above, number = [], first - 1
    while number > 0 and source.comments[number - 1].strip():
        above.append(source.comments[number - 1])
        number -= 1
    if not any(re.search(r"\blong: \w+", line) for line in above):
        find(source.path, first, f"a function of {lines} lines; {FUNCTION_LINES} is the most, "
             "or say /* long: why */ on the line before")


def check_includes(source):
    parts = source.path.parts
    top = parts[0]
    for number, line in enumerate(source.code, 1):
        match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not match:
            continue
        name = match[2]
        for system, pattern, folders in SYSTEMS:
            if re.match(pattern, name) and not str(source.path).startswith(folders):
                find(source.path, number, f"{name}: only {folders[0]} knows {system}")
        if match[1] == '"' and top == "src":
            check_library_include(source, number, name)
        inside = parts[:2] in (("bench", "kernels"), ("bench", "cuda"))
        if match[1] == '"' and top in PUBLIC_ONLY and not inside:
            if name.split("/")[0] in FOLDERS or name.startswith(".."):
                find(source.path, number, f"{name}: {top} knows only xorcast.h and its own files")


def check_library_include(source, number, name):
    folder = source.path.parts[1] if len(source.path.parts) > 2 else ""
    target = name.split("/")[0]
    if name == "xorcast.h" or (str(source.path), name) in CROSSINGS:
        return
    if "/" not in name or target not in FOLDERS:
        find(source.path, number, f'{name}: write the folder, as in "base/context.h"')
    elif folder not in FOLDERS:
        find(source.path, number, f"src/{folder} has no include rule; add it to FOLDERS of tidy.py")
    elif target != folder and target not in FOLDERS[folder]:
        allowed = ", ".join(sorted(FOLDERS[folder])) or "nothing"
        find(source.path, number, f"{name}: {folder} uses {allowed}, not {target}")


def check_guard(source):
    if source.path.suffix != ".h":
        return
    stem = re.sub(r"\W", "_", source.path.stem).upper()
    match = re.search(r"#ifndef (\w+)\n#define (\w+)\n", source.text)
    if not match or match[1] != match[2]:
        find(source.path, 1, "no include guard after the opening paragraph")
    elif source.path.parts[0] == "src" and match[1] != f"XCI_{stem}_H":
        line = source.text.count("\n", 0, match.start()) + 1
        find(source.path, line, f"the guard is not XCI_{stem}_H")


# ---- Rules about all files ----------------------------------------------------------------------


def check_names(sources):
    seen = {}
    for source in sources:
        if not (source.is_c or source.path.suffix in (".py", ".sh")):
            continue
        other = seen.setdefault(source.path.name, source.path)
        if other != source.path:
            find(source.path, 1, f"named like {other}; file names are unique in the tree")


def check_words(sources):
    """Words of ours in comments and documents exist in the code."""
    known = set()
    for source in sources:
        if source.path.suffix not in (".md", ".1"):
            for line in source.code:
                known.update(match[1] for match in OUR_WORD.finditer(line))
            known.update(re.findall(r"\b(?:XORCAST|XCI)_\w+(?==)", "\n".join(source.code)))
        if source.path.name == "xorcast.h":
            names = re.findall(r"\bX\((\w+), -?\d+", source.text)
            known.update(f"XORCAST_{name}" for name in names)
    for source in sources:
        document = source.path.suffix in (".md", ".1") and source.path.name != "CHANGELOG.md"
        for number, line in enumerate(source.lines if document else source.comments, 1):
            for match in OUR_WORD.finditer(line):
                word = match[1]
                prefix = match[2] or word.endswith("_")
                if word not in known and not (prefix and any(w.startswith(word) for w in known)):
                    find(source.path, number, f"{word} exists nowhere in the code")


def check_macros(sources):
    """Every macro of the public header is expanded by a test, so that a broken one cannot ship."""
    header = next((s for s in sources if str(s.path) == "include/xorcast.h"), None)
    tests = "\n".join("\n".join(s.code) for s in sources if s.path.parts[0] == "tests" and s.is_c)
    used = set(re.findall(r"\b\w+\b", tests))
    for number, line in enumerate(header.code if header else [], 1):
        match = re.match(r"\s*#\s*define (XORCAST_\w+)", line)
        name = match[1] if match else None
        if name and name not in used and name != "XORCAST_H" and not name.endswith("_"):
            find(header.path, number, f"{name} is expanded by no test")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    sources = load(root)
    paths = {source.path for source in sources}
    for source in sources:
        check_lines(source)
        check_opening(source, paths)
        check_comments(source)
        check_includes(source)
        check_guard(source)
        if source.is_c:
            check_calls(source)
            check_functions(source)
    check_names(sources)
    check_words(sources)
    check_macros(sources)
    for path, line, message in sorted(findings):
        print(f"{path}:{line}: {message}")
    print(f"tidy: {len(sources)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
