/* Labels of a table: which text is which class. */
#ifndef FL_DATA_TABLE_LABELS_H
#define FL_DATA_TABLE_LABELS_H

#include "data/table/rows.h"

/* names [n] in the order of the classes, owned. Integers where every name is one. */
typedef struct fl_table_labels {
    char **names;
    int n;
    bool integers;
    int32_t *slots;   /* a hash table: a class, or -1 */
    const char *from; /* what to name in messages, borrowed: the file that has the labels */
} fl_table_labels;

/* The labels of all rows, sorted: integers by value, texts by bytes. FL_EFORMAT for a mixture of
 * both, an empty label, and too many of them; FL_ENOMEM. Nothing is held on failure. */
fl_status fl__table_labels_collect(const fl_table_rows *rows, fl_table_labels *out) FL_MUST_CHECK;

/* The given names, whose position is their class. FL_EINVAL for a name that occurs twice. */
fl_status fl__table_labels_copy(const char *from, const char *const *names, int n,
                                fl_table_labels *out) FL_MUST_CHECK;

void fl__table_labels_fini(fl_table_labels *labels);

/* The class of each row, -1 for a row without a cell.
 * optional  a label that is not known gives -1, too; otherwise it is FL_EFORMAT */
fl_status fl__table_labels_map(const fl_table_labels *labels, const fl_table_rows *rows,
                               bool optional, int32_t *classes) FL_MUST_CHECK;

#endif
