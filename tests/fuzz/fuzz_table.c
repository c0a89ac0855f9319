/* libFuzzer over tables: the first byte chooses the format, whether columns are numbers, whether
 * there is a second text, and whether the rest is packed; the rest is the file. */
#include "data/table/labels.h"
#include "pack.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 16, NUMBERS = 4, PAIR = 8, PACKED = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Cells are text that is there to read, and rows come in the order of their lines. */
static void check_rows(const fl_table_rows *rows, bool pair)
{
    unsigned sum = 0;
    for (size_t i = 0; i < rows->n; i++) {
        const fl_table_row *row = &rows->row[i];
        if (row->line < 1 || (i > 0 && row->line <= rows->row[i - 1].line)) {
            abort();
        }
        for (int u = 0; u < FL_TABLE_USES; u++) {
            if ((row->cell[u].bytes != NULL) != (u != FL_TABLE_PAIR || pair) ||
                (row->cell[u].n_bytes > 0 &&
                 memchr(row->cell[u].bytes, '\0', row->cell[u].n_bytes) != NULL)) {
                abort();
            }
            for (size_t k = 0; k < row->cell[u].n_bytes; k++) {
                sum += (unsigned char)row->cell[u].bytes[k];
            }
        }
    }
    if (rows->n == 0 || sum > 255 * rows->content->n_bytes * FL_TABLE_USES) {
        abort();
    }
}

/* A label that was collected has a class, and classes have the order of their labels. */
static void check_labels(const fl_table_rows *rows)
{
    fl_table_labels labels;
    if (fl__table_labels_collect(rows, &labels) != FL_OK) {
        return;
    }
    int32_t *classes = calloc(rows->n, sizeof *classes);
    if (classes == NULL || fl__table_labels_map(&labels, rows, false, classes) != FL_OK) {
        abort();
    }
    for (size_t i = 0; i < rows->n; i++) {
        const fl_text cell = rows->row[i].cell[FL_TABLE_LABEL];
        const char *name = labels.names[classes[i]];
        if (strlen(name) != cell.n_bytes || memcmp(name, cell.bytes, cell.n_bytes) != 0) {
            abort();
        }
    }
    free(classes);
    fl__table_labels_fini(&labels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t packed[FILE_MAX];
    static const char *const names[] = {"a.tsv", "a.csv", "a.jsonl", "a.ndjson"};
    static const char *const packed_names[] = {"a.tsv.gz", "a.csv.gz", "a.jsonl.gz", "a.ndjson.gz"};
    if (size < 1 || size > FILE_MAX / 2) {
        return 0;
    }
    bool numbers = (data[0] & NUMBERS) != 0, pair = (data[0] & PAIR) != 0;
    fl_table_columns columns = {.name = {numbers ? "1" : "a", NULL, numbers ? "2" : "b"}};
    if (pair) {
        columns.name[FL_TABLE_PAIR] = numbers ? "3" : "c";
    }
    const uint8_t *file = data + 1;
    size_t n = size - 1;
    const char *name = names[data[0] & 3];
    if ((data[0] & PACKED) != 0) {
        n = pack(file, n, packed, sizeof packed);
        file = packed;
        name = packed_names[data[0] & 3];
    }
    fl_content content;
    fl_table_rows rows;
    if (fl__content_copy(name, file, n, FL_TABLE_LINE_BYTES_MAX, &content) != FL_OK) {
        return 0;
    }
    if (fl__table_rows_read(&content, &columns, &rows) == FL_OK) {
        check_rows(&rows, pair);
        check_labels(&rows);
        fl__table_rows_fini(&rows);
    }
    fl__content_fini(&content);
    return 0;
}
