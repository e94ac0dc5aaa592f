/* The xorcast tool: one table of commands, their help, and the way from arguments to an exit code.
 * Owns the library's context and reports failures; what a command does is in its own file. Uses
 * nothing but xorcast.h. */
#include "cli_commands.h"
#include "cli_progress.h"
#include "cli_stop.h"
#include "cli_words.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct command {
    const char *name;
    uint32_t bit;
    int least, most; /* operands */
    xorcast_status (*run)(cli_session *session);
    const char *usage, *summary, *text;
} command;

static const command commands[] = {
    {"diff", CLI_DIFF, 2, 2, cli_diff, "OLD NEW -o DELTA",
     "write the delta between two checkpoints",
     "Compares two checkpoints bit by bit and writes what turns OLD into NEW: one file,\n"
     "usually a few hundredths of the weights or less. Tensors that were added, renamed or\n"
     "resized travel whole; headers and small files beside the weights travel too. Memory does\n"
     "not grow with the checkpoints.\n"
     "\n"
     "example:\n"
     "  xorcast diff step_000011 step_000012 -o 12.xorcast --run grpo-7 --base 11 --target 12\n"},
    {"apply", CLI_APPLY, 2, 2, cli_apply, "CHECKPOINT DELTA [-o OUT]",
     "turn a checkpoint into the delta's target",
     "Verifies that CHECKPOINT is the delta's base, every byte of the delta, and the result;\n"
     "then the new checkpoint appears at once, over the old one or at OUT, file for file as\n"
     "the one it was made from. Whatever fails, CHECKPOINT is as it was. The files of a\n"
     "directory are renamed one by one: who reads it by other means meanwhile needs -o.\n"
     "\n"
     "An apply that was interrupted is finished or discarded by the next command on that path,\n"
     "which says so, and may be repeated: if the target is there already, by the digest of all\n"
     "weights, it says so, writes nothing and ends with 0. OUT counts as there if it is the\n"
     "target file for file; if it is not there and CHECKPOINT is the target already, CHECKPOINT\n"
     "is copied to it.\n"
     "\n"
     "example:\n"
     "  xorcast apply step_000011 12.xorcast -o step_000012\n"},
    {"check", CLI_CHECK, 2, 2, cli_check, "CHECKPOINT DELTA",
     "say whether a delta would apply, and change nothing",
     "Does all that apply does but write: reads both whole and verifies base, delta and result.\n"
     "If the target is there already, it says so and ends with 0, as apply does, unless the\n"
     "delta is damaged.\n"
     "\n"
     "example:\n"
     "  xorcast check step_000011 12.xorcast && echo good\n"},
    {"inspect", CLI_INSPECT, 0, 1, cli_inspect, "DELTA | --device",
     "print what a delta says of itself, or what the GPU is",
     "Prints run, steps, digests, how much changes in bits, bytes and elements, sizes, and which\n"
     "codecs were chosen. Reads the delta and checks its bytes; no weights are needed. With\n"
     "--device: the GPU that the library would use.\n"
     "\n"
     "example:\n"
     "  xorcast inspect 12.xorcast --json | jq .bytes_changed_share\n"},
    {"fold", CLI_FOLD, 1, 1 << 20, cli_fold, "DELTA... -o DELTA",
     "make one delta of consecutive ones",
     "Makes one delta of several that follow each other, oldest first, without any weights: what\n"
     "changed back and forth cancels out.\n"
     "\n"
     "example:\n"
     "  xorcast fold 11.xorcast 12.xorcast 13.xorcast -o 10-to-13.xorcast\n"},
    {"publish", CLI_PUBLISH, 1, 1, cli_publish, "DIRECTORY",
     "serve a directory of checkpoints as versions",
     "Replays a directory of consecutive checkpoints as a trainer would publish them: loads each\n"
     "into memory, encodes it against the one before and serves it to any number of followers.\n"
     "If all names end in numbers that differ, as step_000012 does, these are the steps, else\n"
     "they are 0, 1, 2, with a warning. Names in .tmp, directories without weights and links to\n"
     "other steps are left out. Prints its URL first, then a line for each version. A checkpoint\n"
     "itself is no such directory: give the one that holds it.\n"
     "\n"
     "example:\n"
     "  xorcast publish checkpoints --interval 5 --wait-peers 1\n"},
    {"follow", CLI_FOLLOW, 2, 2, cli_follow, "URL CHECKPOINT [-o OUT]",
     "keep a checkpoint's weights in step with a publisher",
     "Loads CHECKPOINT into memory and applies each version as it is published, in place. A\n"
     "checkpoint that the publisher does not know is brought up by keyframe: only what differs\n"
     "is sent. Prints a line for each version; ship is waiting for bytes, stage is checking\n"
     "while the weights are in use, pause is the XOR in place.\n"
     "\n"
     "OUT is written once, at the end. With --until or --versions it ends there; if that is not\n"
     "reached, OUT is not written. Without them it ends by Ctrl-C (exit code 12), when the\n"
     "publisher has ended and been gone for --timeout (LINK_DOWN, 40), or been silent for that\n"
     "long (TIMED_OUT, 11); OUT is written then. A follower that is started before its publisher\n"
     "fails at once.\n"
     "\n"
     "example:\n"
     "  xorcast follow tcp:127.0.0.1:40123 step_000000 --until 12 -o step_000012\n"},
    {"bench", CLI_BENCH, 0, 0, cli_bench, "", "measure this machine in memory",
     "Makes weights and changes from a seed, publishes and applies versions within this process,\n"
     "and shows each phase beside the time that reading the same bytes takes. Then tells what "
     "this\n"
     "machine's GPU can do, if it has one.\n"
     "\n"
     "example:\n"
     "  xorcast bench --device --bytes 8g\n"
     "  xorcast bench --bytes 1g --density 0.0005 --threads 1 --second-pass none\n"},
    {"bench codecs", CLI_CODECS, 1, 1, cli_bench_codecs, "DIRECTORY",
     "compare codecs on a directory of checkpoints",
     "Takes the steps between the consecutive checkpoints of DIRECTORY through every codec of\n"
     "the format, by publisher and subscriber within this process, and through what others do:\n"
     "other compressors on the same chunks, a zstd frame of each tensor's XOR, lists of positions\n"
     "and values. Shows for each the bytes, beside two entropy bounds, and how fast it is.\n"
     "\n"
     "  order 0       the bound of a coder that knows how many places of a tensor change, and how\n"
     "                often each XOR value occurs. Places are bytes, byte planes of elements of 4\n"
     "                or 8 bytes, nibbles where two numbers share a byte\n"
     "  given old     of one that has the old weights too: which elements change and by how many\n"
     "                steps of their last place, given their exponent\n"
     "  encode        old and new weights to bytes, digests and checksums of the format included\n"
     "  stage         bytes, checked, to what can be applied; beside generation\n"
     "  commit        the pause\n"
     "\n"
     "Speeds are of weights. Old, new and the sampler's weights and a copy are in memory at once,\n"
     "and the XOR for what needs it. Where there is a GPU, the format's codecs are measured on it\n"
     "too, on so many copies of the tensors that it has enough to do.\n"
     "\n"
     "example:\n"
     "  xorcast bench codecs checkpoints --repeat 11 --svg codecs.svg\n"
     "  xorcast bench codecs checkpoints --backend cuda --bytes 8g --only lz4,gap\n"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* ---- Help -------------------------------------------------------------------------------------*/

static void print_overview(FILE *file) {
    fputs("xorcast keeps the weights of RL samplers bit-identical to the trainer's: it sends the\n"
          "compressed XOR of new and old bytes, and applies it in place.\n"
          "\n"
          "usage: xorcast COMMAND [OPTIONS]\n"
          "\n",
          file);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(file, "  %-13s %s\n", commands[i].name, commands[i].summary);
    fputs(
        "\n"
        "  help [COMMAND | exit-codes]\n"
        "  --version\n"
        "\n"
        "A checkpoint is a safetensors file, or a directory of them with their index. A delta is\n"
        "one file. 'xorcast help COMMAND' teaches a command with an example.\n",
        file);
}

static void print_exit_codes(FILE *file) {
    static const struct {
        int code;
        const char *name, *remedy, *text;
    } rows[] = {
#define ROW(name, value, remedy, code, text) {code, #name, remedy, text},
        XORCAST_STATUS_LIST(ROW)
#undef ROW
    };
    fputs("exit codes, the status behind each, and what to do:\n\n", file);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code != 0 || strcmp(rows[i].remedy, "NONE") == 0)
            fprintf(file, "  %2d  %-17s %-15s %s\n", rows[i].code, rows[i].name, rows[i].remedy,
                    rows[i].text);
    fputs("\nwhat to do, in words:\n\n", file);
    for (size_t i = 0; i < CLI_REMEDIES; i++)
        fprintf(file, "  %-15s %s\n", cli_remedies[i].word, cli_remedies[i].text);
}

static void print_command(FILE *file, const command *c) {
    fprintf(file, "usage: xorcast %s %s%s[OPTIONS]\n\n%s\noptions:\n", c->name, c->usage,
            c->usage[0] == '\0' ? "" : " ", c->text);
    cli_options_print(file, c->bit);
    fputs("\nexit codes: 0 done, 2 wrong usage, 3 unsupported, 10-14 memory, time or files,\n"
          "20-23 a bad delta, 30-34 another version or layout, 40-42 the link or no such file,\n"
          "50 the device, 60-61 the weights, 70 a defect; 'xorcast help exit-codes' has all.\n",
          file);
}

static const command *find_command(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* The command that the first of `count` words name, two if two do. */
static const command *find_words(int count, char **words, int *used_out) {
    for (size_t i = 0; i < COMMANDS && count > 1; i++) {
        const size_t first = strlen(words[0]);
        const char *name = commands[i].name;
        if (strncmp(name, words[0], first) == 0 && name[first] == ' ' &&
            strcmp(name + first + 1, words[1]) == 0) {
            *used_out = 2;
            return &commands[i];
        }
    }
    *used_out = 1;
    return count > 0 ? find_command(words[0]) : NULL;
}

/* ---- Running ----------------------------------------------------------------------------------*/

static bool has_argument(int count, char **arguments, const char *wanted) {
    for (int i = 1; i < count && strcmp(arguments[i], "--") != 0; i++)
        if (strcmp(arguments[i], wanted) == 0)
            return true;
    return false;
}

/* While there is no context, the library has no other way to say why it does not start. */
static void take_log(void *user, xorcast_log_level level, const char *text) {
    static const char *const names[] = {"error", "warning", "info", "debug"};
    cli_session *session = user;
    if (session->context == NULL && level == XORCAST_LOG_ERROR) {
        (void)cli_fail(session, XORCAST_INTERNAL, 0, "%s", text);
        return;
    }
    cli_log(session, names[(unsigned)(level - XORCAST_LOG_ERROR) % 4], text);
}

static xorcast_status open_context(cli_session *session) {
    const cli_options *o = &session->options;
    xorcast_context_options options = XORCAST_CONTEXT_OPTIONS_INIT;
    options.threads = (uint32_t)o->threads;
    options.backend = o->backend;
    options.scratch_limit_bytes = o->scratch_bytes;
    options.log_level = o->quiet ? XORCAST_LOG_ERROR : XORCAST_LOG_WARNING;
    options.log = take_log;
    options.progress = cli_progress_update;
    options.user = session;
    const xorcast_status status = xorcast_context_create(&options, &session->context);
    if (status >= 0)
        return XORCAST_OK;
    if (session->failure.text[0] == '\0')
        return cli_fail(session, status, 0, "the library does not start: %s",
                        xorcast_status_text(status));
    session->failure.status = status;
    return status;
}

/* A result that did not arrive is none. */
static xorcast_status flush_results(cli_session *session) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return XORCAST_OK;
    return cli_fail(session, XORCAST_IO_FAILED, errno, "standard output cannot be written");
}

static xorcast_status check_operands(cli_session *session, const command *c) {
    const cli_options *o = &session->options;
    if (o->operand_count < c->least)
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "something is missing: xorcast %s %s; see 'xorcast %s --help'", c->name,
                        c->usage, c->name);
    if (o->operand_count > c->most)
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "'%.200s' is too much: xorcast %s%s%s; see 'xorcast %s --help'",
                        o->operands[c->most], c->name, c->usage[0] == '\0' ? "" : " ", c->usage,
                        c->name);
    return XORCAST_OK;
}

static xorcast_status run_command(cli_session *session, const command *c, int count,
                                  char **arguments) {
    char problem[400];
    if (!cli_options_parse(c->name, c->bit, count, arguments, &session->options, problem,
                           sizeof problem)) {
        session->options.json = has_argument(count, arguments, "--json");
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0, "%s", problem);
    }
    if (session->options.help) {
        print_command(stdout, c);
        return XORCAST_OK;
    }
    CLI_TRY(check_operands(session, c));
    CLI_TRY(open_context(session));
    return c->run(session);
}

static xorcast_status print_help(cli_session *session, int count, char **words) {
    int used;
    const char *topic = count > 0 ? words[0] : NULL;
    const command *c = find_words(count, words, &used);
    if (topic == NULL)
        print_overview(stdout);
    else if (strcmp(topic, "exit-codes") == 0)
        print_exit_codes(stdout);
    else if (c != NULL)
        print_command(stdout, c);
    else
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "there is no help on '%.200s'; 'xorcast help' lists the commands", topic);
    return XORCAST_OK;
}

static xorcast_status print_tool_version(bool as_json) {
    const uint32_t number = xorcast_library_version();
    char text[32];
    snprintf(text, sizeof text, "%u.%u.%u", number / 10000, number / 100 % 100, number % 100);
    if (as_json) {
        cli_json json = cli_json_begin(stdout);
        cli_json_text(&json, "version", text);
        cli_json_end(&json);
    } else {
        printf("xorcast %s\n", text);
    }
    return XORCAST_OK;
}

/* Whoever types only the name wants to know what can follow it. */
static xorcast_status no_command(cli_session *session) {
    if (!session->options.json) {
        print_overview(stderr);
        fputc('\n', stderr);
    }
    return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                    "a command is missing; 'xorcast help' lists them");
}

static xorcast_status run(cli_session *session, int count, char **arguments) {
    int used;
    const char *name = count > 1 ? arguments[1] : NULL;
    const command *c = find_words(count - 1, arguments + 1, &used);
    session->options.json = has_argument(count, arguments, "--json");
    if (name == NULL || (count == 2 && strcmp(name, "--json") == 0))
        return no_command(session);
    if (c != NULL) {
        session->command = c->name;
        return run_command(session, c, count - used, arguments + used);
    }
    if (strcmp(name, "--version") == 0)
        return print_tool_version(session->options.json);
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return print_help(session, count - 2, arguments + 2);
    for (int i = 2; i < count && c == NULL && name[0] == '-'; i++)
        c = find_words(count - i, arguments + i, &used);
    if (c != NULL)
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "options come after the command: xorcast %s ... %.100s", c->name, name);
    return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                    "there is no command '%.200s'; 'xorcast help' lists them", name);
}

int main(int count, char **arguments) {
    cli_session session = {.command = ""};
    /* A reader that left and a limit on the size of files are errors of writing, not our end. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    xorcast_status status = run(&session, count, arguments);
    if (status >= 0) {
        const xorcast_status flushed = flush_results(&session);
        status = flushed < 0 ? flushed : status;
    }
    if (status < 0)
        cli_report(&session, status);
    xorcast_context_destroy(session.context);
    if (status == XORCAST_CANCELLED)
        cli_stop_end(&session);
    return xorcast_status_exit_code(status);
}
