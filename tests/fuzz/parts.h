/* Fuzz targets of folders: the input is cut into the contents of files at each byte 0x1E (a record
 * separator), and the files lie in a folder of the process, which is removed at its end. */
#ifndef FL_TESTS_FUZZ_PARTS_H
#define FL_TESTS_FUZZ_PARTS_H

#include "data/tokenizer/files/tokenizer_open.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART_SEPARATOR = 0x1E, FOLDER_ROOM = PATH_MAX / 2 };

static inline void require(int holds)
{
    if (!holds) {
        abort();
    }
}

/* Make a folder under TMPDIR whose name begins with `name`. */
static inline void make_part_folder(const char *name, char folder[FOLDER_ROOM])
{
    const char *parent = getenv("TMPDIR");
    int length =
        snprintf(folder, FOLDER_ROOM, "%s/%s_XXXXXX", parent != NULL ? parent : P_tmpdir, name);
    require(length < FOLDER_ROOM && mkdtemp(folder) != NULL);
}

/* parts [n_max] out: those behind the last separator have bytes NULL; the last one takes the rest
 * with its separators. */
static inline void split_parts(const uint8_t *data, size_t size, fl_text *parts, int n_max)
{
    const char *at = (const char *)data, *end = at + size;
    for (int i = 0; i < n_max; i++) {
        parts[i] = (fl_text){0};
        if (at > end) {
            continue;
        }
        const char *next = memchr(at, PART_SEPARATOR, (size_t)(end - at));
        next = next == NULL || i == n_max - 1 ? end : next;
        parts[i] = (fl_text){.bytes = at, .n_bytes = (size_t)(next - at)};
        at = next + 1;
    }
}

/* Write a part under this name, or remove the file where there is no such part. */
static inline void save_part(const char *folder, const char *name, fl_text content)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (content.bytes == NULL) {
        unlink(path);
        return;
    }
    FILE *file = fopen(path, "wb");
    require(file != NULL);
    require(fwrite(content.bytes, 1, content.n_bytes, file) == content.n_bytes);
    require(fclose(file) == 0);
}

#endif
