/* Files for tests: a folder of one's own, whole trees compared and copied, and safetensors files
 * with contents that depend on a seed. Everything that fails here ends the test. */
#ifndef TEST_DISK_H
#define TEST_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A new, empty folder; removed by test_tree_remove. */
const char *test_folder(void);
/* "folder/name" in one of a few static buffers: for use at once. */
const char *test_path(const char *folder, const char *name);

void test_tree_remove(const char *path); /* file or folder; absent is fine */
void test_tree_copy(const char *from, const char *to);
/* The same names, hidden ones too, and the same bytes. Prints the first difference. */
bool test_tree_equal(const char *a, const char *b);
/* The same without complaint, and without hidden names. */
bool test_tree_matches(const char *a, const char *b);

void test_make_folder(const char *path);
void test_file_put(const char *path, const void *bytes, size_t count);
void test_text_put(const char *path, const char *text);
uint8_t *test_file_get(const char *path, size_t *count_out); /* free(3) */

typedef struct test_tensor {
    const char *name, *dtype, *shape; /* shape as JSON */
    uint64_t bytes;
    uint64_t version; /* bytes depend on the name; each version changes about one in 500 */
} test_tensor;
/* `metadata` as JSON or NULL; `pad` spaces follow the header. */
void test_safetensors(const char *path, const char *metadata, const test_tensor *tensors,
                      size_t count, unsigned pad);

#endif
