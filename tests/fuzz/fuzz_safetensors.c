/* libFuzzer over the reader of safetensors files. The input is the header and the data: the length
 * in front of them, which the fuzzer would have to guess, is made here; its first byte says how
 * wrong that length is. */
#include "nn/safetensors/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 16, SOME = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What every caller relies on: shapes agree with the elements, and those that it reads are there.
 */
static void check(const fl_safetensors *file)
{
    for (int i = 0; i < fl_safetensors_n(file); i++) {
        const fl_st_tensor *t = fl_safetensors_at(file, i);
        int64_t n = 1;
        float to[SOME];
        for (int d = 0; d < t->n_dims; d++) {
            n *= t->dims[d];
        }
        if (n != t->n_elements || fl_safetensors_find(file, t->name) != t) {
            abort();
        }
        int64_t some = n < SOME ? n : SOME;
        fl_status status = fl_safetensors_read(file, t, n - some, some, to);
        if (status != FL_OK && status != FL_ENOTSUP) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    fl_safetensors *file = NULL;
    if (size < 2 || size > FILE_MAX) {
        return 0;
    }
    /* The header ends with its last brace, in front of the data. */
    size_t end = size;
    while (end > 1 && data[end - 1] != '}') {
        end--;
    }
    uint64_t length = end - 1 + (data[0] < 16 ? data[0] : 0);
    int fd = memfd_create("safetensors", 0);
    if (fd < 0 || write(fd, &length, sizeof length) != sizeof length ||
        write(fd, data + 1, size - 1) != (ssize_t)(size - 1)) {
        abort();
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fl_safetensors_open(path, &file) == FL_OK) {
        check(file);
    }
    fl_safetensors_close(&file);
    close(fd);
    return 0;
}
