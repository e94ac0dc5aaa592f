/* The command line of a benchmark: options that a table names, and names of what is to run. C and
 * CUDA. */
#ifndef BENCH_CUDA_ARGUMENTS_H
#define BENCH_CUDA_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum argument_kind {
    ARGUMENT_FLAG,  /* bool */
    ARGUMENT_TEXT,  /* const char * */
    ARGUMENT_COUNT, /* unsigned */
    ARGUMENT_BYTES  /* uint64_t; 55.6e9 will do */
} argument_kind;

typedef struct argument {
    const char *name;
    argument_kind kind;
    void *place;
} argument;

static inline bool take_value(const argument *option, const char *text) {
    char *end = NULL;
    if (option->kind == ARGUMENT_TEXT) {
        *(const char **)option->place = text;
        return true;
    }
    const double number = strtod(text, &end);
    if (end == text || *end != 0 || !(number >= 0 && number < 1e18))
        return false;
    if (option->kind == ARGUMENT_BYTES)
        *(uint64_t *)option->place = (uint64_t)number;
    else if (number <= UINT32_MAX)
        *(unsigned *)option->place = (unsigned)number;
    return option->kind == ARGUMENT_BYTES || number <= UINT32_MAX;
}

static inline void unknown_argument(const char *program, const char *word) {
    fprintf(stderr, "%s: what is %s?\n", program, word);
    exit(2);
}

/* Words that are no options move to the front, words[1] and behind it; returns how many. Ends the
 * program with status 2 where it does not know an option or its value. */
static inline int read_arguments(int count, char **words, const argument *options,
                                 size_t option_count) {
    int names = 0;
    for (int i = 1; i < count; i++) {
        const argument *found = NULL;
        for (size_t o = 0; o < option_count; o++)
            if (strcmp(words[i], options[o].name) == 0)
                found = &options[o];
        if (found != NULL && found->kind == ARGUMENT_FLAG) {
            *(bool *)found->place = true;
        } else if (found != NULL && i + 1 < count && take_value(found, words[i + 1])) {
            i++;
        } else if (found != NULL || strncmp(words[i], "--", 2) == 0) {
            unknown_argument(words[0], words[i]);
        } else {
            words[++names] = words[i];
        }
    }
    return names;
}

/* For a program that has options only. */
static inline void read_options(int count, char **words, const argument *options,
                                size_t option_count) {
    if (read_arguments(count, words, options, option_count) > 0)
        unknown_argument(words[0], words[1]);
}

/* Whether a name is among those, or none was given. */
static inline bool is_wanted(int names, char **words, const char *name) {
    for (int i = 1; i <= names; i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return names == 0;
}

#endif
