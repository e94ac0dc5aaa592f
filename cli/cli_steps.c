/* See cli_steps.h. */
#include "cli_steps.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char suffix[] = ".safetensors";
static const char index_suffix[] = ".safetensors.index.json";

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* The number that ends a name, its suffix left out; XORCAST_NO_STEP if there is none. */
static uint64_t number_in(const char *path) {
    size_t end = strlen(path);
    if (ends_with(path, suffix))
        end -= strlen(suffix);
    size_t begin = end;
    while (begin > 0 && path[begin - 1] >= '0' && path[begin - 1] <= '9')
        begin--;
    if (begin == end || end - begin > 18)
        return XORCAST_NO_STEP;
    return strtoull(path + begin, NULL, 10);
}

/* NAME-00001-of-00003.safetensors: a part of one checkpoint. */
static bool is_shard(const char *name) {
    const char *of = strstr(name, "-of-");
    const size_t digits = of == NULL ? 0 : strspn(of + 4, "0123456789");
    return digits > 0 && strcmp(of + 4 + digits, suffix) == 0;
}

/* Is it a file of weights, or a directory with one? */
static bool is_checkpoint(const char *path) {
    DIR *directory = opendir(path);
    if (directory == NULL)
        return ends_with(path, suffix);
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(directory)) != NULL;)
        found = ends_with(entry->d_name, suffix) || ends_with(entry->d_name, index_suffix);
    closedir(directory);
    return found;
}

static void warn_left_out(const cli_session *session, const char *path, const char *why) {
    char text[1200];
    snprintf(text, sizeof text, "%.800s is left out: %s", path, why);
    cli_warn(session, text);
}

/* Is it to be in the list? Files of other kinds may lie beside steps. */
static bool is_step(const cli_session *session, const char *path, const struct stat *facts) {
    if (!S_ISDIR(facts->st_mode))
        return S_ISREG(facts->st_mode) && ends_with(path, suffix);
    if (ends_with(path, ".tmp"))
        warn_left_out(session, path, "it is being written, by its name");
    else if (!is_checkpoint(path))
        warn_left_out(session, path, "it holds no .safetensors file");
    else
        return true;
    return false;
}

static xorcast_status add(cli_session *session, cli_steps *steps, const char *directory,
                          const char *name) {
    if (steps->count == steps->room) {
        const uint64_t room = 2 * steps->room + 16;
        cli_step_entry *moved = realloc(steps->at, room * sizeof *moved);
        if (moved == NULL)
            return cli_fail(session, XORCAST_NO_HOST_MEMORY, 0, "no memory for a list of steps");
        steps->at = moved;
        steps->room = room;
    }
    char *path;
    struct stat facts;
    if (asprintf(&path, "%s/%s", directory, name) < 0)
        return cli_fail(session, XORCAST_NO_HOST_MEMORY, 0, "no memory for a file name");
    if (stat(path, &facts) == 0 && is_step(session, path, &facts)) {
        struct stat itself;
        const bool is_link = lstat(path, &itself) == 0 && S_ISLNK(itself.st_mode);
        steps->at[steps->count++] =
            (cli_step_entry){path, number_in(path), facts.st_dev, facts.st_ino, is_link};
    } else {
        free(path);
    }
    return XORCAST_OK;
}

static int by_step(const void *a, const void *b) {
    const uint64_t x = ((const cli_step_entry *)a)->step, y = ((const cli_step_entry *)b)->step;
    return x < y ? -1 : x > y;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const cli_step_entry *)a)->path, ((const cli_step_entry *)b)->path);
}

static bool is_listed_twice(const cli_steps *steps, uint64_t link) {
    for (uint64_t i = 0; i < steps->count; i++)
        if (i != link && steps->at[i].device == steps->at[link].device &&
            steps->at[i].inode == steps->at[link].inode && (!steps->at[i].is_link || i < link))
            return true;
    return false;
}

/* `latest` and the like. Of two links to what is no step itself, the first by name stays. */
static void drop_links(const cli_session *session, cli_steps *steps) {
    qsort(steps->at, steps->count, sizeof *steps->at, by_path);
    for (uint64_t i = steps->count; i-- > 0;) {
        if (!steps->at[i].is_link || !is_listed_twice(steps, i))
            continue;
        warn_left_out(session, steps->at[i].path, "it is a link to another step");
        free(steps->at[i].path);
        steps->at[i] = steps->at[--steps->count];
    }
}

static void order(const cli_session *session, const char *directory, cli_steps *steps) {
    char text[1200];
    qsort(steps->at, steps->count, sizeof *steps->at, by_step);
    bool numbered = steps->at[steps->count - 1].step != XORCAST_NO_STEP;
    for (uint64_t i = 1; i < steps->count; i++)
        numbered = numbered && steps->at[i - 1].step != steps->at[i].step;
    if (numbered)
        return;
    qsort(steps->at, steps->count, sizeof *steps->at, by_path);
    for (uint64_t i = 0; i < steps->count; i++)
        steps->at[i].step = i;
    snprintf(text, sizeof text,
             "the names in %.400s do not all end in numbers that differ: taken in order of names, "
             "as steps 0 to %llu",
             directory, (unsigned long long)steps->count - 1);
    if (steps->count > 1)
        cli_warn(session, text);
}

static xorcast_status read_entries(cli_session *session, DIR *open_directory, const char *directory,
                                   cli_steps *steps) {
    for (struct dirent *entry; (entry = readdir(open_directory)) != NULL;) {
        if (ends_with(entry->d_name, index_suffix) || is_shard(entry->d_name))
            return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                            "%.400s is one checkpoint; give the directory that holds the steps",
                            directory);
        if (entry->d_name[0] != '.')
            CLI_TRY(add(session, steps, directory, entry->d_name));
    }
    return XORCAST_OK;
}

xorcast_status cli_steps_list(cli_session *session, const char *directory, cli_steps *steps) {
    memset(steps, 0, sizeof *steps);
    DIR *open_directory = opendir(directory);
    if (open_directory == NULL && errno == ENOTDIR)
        return cli_fail(session, XORCAST_BAD_ARGUMENT, 0,
                        "%.400s is one file; give the directory that holds the steps", directory);
    if (open_directory == NULL)
        return cli_fail_os(session, errno, "read the directory", directory);
    xorcast_status status = read_entries(session, open_directory, directory, steps);
    closedir(open_directory);
    if (status == XORCAST_OK && steps->count > 0)
        drop_links(session, steps);
    if (status == XORCAST_OK && steps->count == 0)
        status = cli_fail(session, XORCAST_NOT_FOUND, 0,
                          "there are no checkpoints in %.400s: neither %s files nor directories "
                          "that hold some",
                          directory, suffix);
    if (status == XORCAST_OK)
        order(session, directory, steps);
    else
        cli_steps_free(steps);
    return status;
}

void cli_steps_free(cli_steps *steps) {
    for (uint64_t i = 0; i < steps->count; i++)
        free(steps->at[i].path);
    free(steps->at);
    memset(steps, 0, sizeof *steps);
}
