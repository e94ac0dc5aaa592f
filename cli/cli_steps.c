/* See cli_steps.h. */
#include "cli_steps.h"

#include <dirent.h>
#include <errno.h>
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

/* One broken step among good ones is named when it is read; here, whether there is any good one. */
static bool has_checkpoint(const cli_steps *steps) {
    for (uint64_t i = 0; i < steps->count; i++)
        if (is_checkpoint(steps->at[i].path))
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
    const bool is_step =
        stat(path, &facts) == 0 &&
        (S_ISDIR(facts.st_mode) || (S_ISREG(facts.st_mode) && ends_with(name, suffix)));
    if (is_step)
        steps->at[steps->count++] = (cli_step_entry){path, number_in(path)};
    else
        free(path);
    return XORCAST_OK;
}

static int by_step(const void *a, const void *b) {
    const uint64_t x = ((const cli_step_entry *)a)->step, y = ((const cli_step_entry *)b)->step;
    return x < y ? -1 : x > y;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const cli_step_entry *)a)->path, ((const cli_step_entry *)b)->path);
}

static void order(cli_steps *steps) {
    qsort(steps->at, steps->count, sizeof *steps->at, by_step);
    bool numbered = steps->at[steps->count - 1].step != XORCAST_NO_STEP;
    for (uint64_t i = 1; i < steps->count; i++)
        numbered = numbered && steps->at[i - 1].step != steps->at[i].step;
    if (numbered)
        return;
    qsort(steps->at, steps->count, sizeof *steps->at, by_path);
    for (uint64_t i = 0; i < steps->count; i++)
        steps->at[i].step = i;
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
    if (status == XORCAST_OK && !has_checkpoint(steps))
        status = cli_fail(session, XORCAST_NOT_FOUND, 0,
                          "there are no checkpoints in %.400s: neither %s files nor directories "
                          "that hold some",
                          directory, suffix);
    if (status == XORCAST_OK)
        order(steps);
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
