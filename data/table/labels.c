#include "data/table/labels.h"

#include "data/table/table_dataset.h"
#include "device/system/alloc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A power of two, at most a third of it used. */
enum { N_SLOTS = 1 << 15, NO_CLASS = -1, INTEGER_DIGITS_MAX = 18 };
_Static_assert(FL_TABLE_CLASSES_MAX <= N_SLOTS / 3, "the hash table stays sparse");

/* An integer as printf writes it: one number has one text. */
static bool is_integer(const char *bytes, size_t n)
{
    size_t at = n > 0 && bytes[0] == '-';
    if (n == at || n - at > INTEGER_DIGITS_MAX || (bytes[at] == '0' && n > 1)) {
        return false;
    }
    for (; at < n; at++) {
        if (bytes[at] < '0' || bytes[at] > '9') {
            return false;
        }
    }
    return true;
}

/* The slot of a label, or the free one where it belongs. */
static size_t find_slot(const fl_table_labels *labels, fl_text label)
{
    size_t slot = (size_t)XXH64(label.bytes, label.n_bytes, 0) % N_SLOTS;
    for (; labels->slots[slot] != NO_CLASS; slot = (slot + 1) % N_SLOTS) {
        const char *name = labels->names[labels->slots[slot]];
        if (strlen(name) == label.n_bytes && memcmp(name, label.bytes, label.n_bytes) == 0) {
            break;
        }
    }
    return slot;
}

static void clear_slots(fl_table_labels *labels)
{
    memset(labels->slots, 0xFF, N_SLOTS * sizeof *labels->slots);
}

static fl_status init_labels(fl_table_labels *labels, const char *from)
{
    *labels = (fl_table_labels){.from = from};
    FL_TRY(fl_alloc_array(FL_TABLE_CLASSES_MAX, sizeof *labels->names, (void **)&labels->names));
    FL_TRY(fl_alloc_array(N_SLOTS, sizeof *labels->slots, (void **)&labels->slots));
    clear_slots(labels);
    return FL_OK;
}

static fl_status add_name(fl_table_labels *labels, size_t slot, fl_text label)
{
    void *name = NULL;
    FL_TRY(fl_alloc(label.n_bytes + 1, &name));
    memcpy(name, label.bytes, label.n_bytes);
    labels->names[labels->n] = name;
    labels->slots[slot] = labels->n++;
    return FL_OK;
}

/* ---- the labels of a file ---- */

/* first: the first row with a label. */
static fl_status check_label(const fl_table_rows *rows, const fl_table_row *first,
                             const fl_table_row *row)
{
    char shown[FL_TABLE_SHOWN_BYTES], shown_first[FL_TABLE_SHOWN_BYTES];
    const fl_text label = row->cell[FL_TABLE_LABEL], other = first->cell[FL_TABLE_LABEL];
    if (label.n_bytes == 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: line %" PRId64 ": an empty label found, allowed: an integer or a text",
                       rows->content->path, row->line);
    }
    bool integer = is_integer(other.bytes, other.n_bytes);
    if (is_integer(label.bytes, label.n_bytes) == integer) {
        return FL_OK;
    }
    return fl_fail(FL_EFORMAT,
                   "%s: line %" PRId64 ": label '%s' found, allowed: %s, as '%s' in line %" PRId64
                   "%s",
                   rows->content->path, row->line, fl__table_shown(label, shown),
                   integer ? "an integer" : "a text that is no integer",
                   fl__table_shown(other, shown_first), first->line,
                   first->line == 1 && !integer
                       ? "; where line 1 has the names of the columns, give data.label by its name"
                       : "");
}

static fl_status collect_names(const fl_table_rows *rows, fl_table_labels *labels)
{
    const fl_table_row *first = NULL;
    for (size_t i = 0; i < rows->n; i++) {
        const fl_table_row *row = &rows->row[i];
        if (row->cell[FL_TABLE_LABEL].bytes == NULL) {
            continue;
        }
        first = first == NULL ? row : first;
        FL_TRY(check_label(rows, first, row));
        size_t slot = find_slot(labels, row->cell[FL_TABLE_LABEL]);
        if (labels->slots[slot] != NO_CLASS) {
            continue;
        }
        if (labels->n == FL_TABLE_CLASSES_MAX) {
            return fl_fail(FL_EFORMAT,
                           "%s: line %" PRId64 ": more than %d different labels found; data.label "
                           "names the column of the classes",
                           rows->content->path, row->line, FL_TABLE_CLASSES_MAX);
        }
        FL_TRY(add_name(labels, slot, row->cell[FL_TABLE_LABEL]));
    }
    return FL_OK;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int compare_integers(const void *a, const void *b)
{
    long long x = strtoll(*(char *const *)a, NULL, 10), y = strtoll(*(char *const *)b, NULL, 10);
    return x < y ? -1 : x > y;
}

static fl_text text_of(const char *name)
{
    return (fl_text){.bytes = name, .n_bytes = strlen(name)};
}

static bool all_integers(const fl_table_labels *labels)
{
    for (int i = 0; i < labels->n; i++) {
        if (!is_integer(labels->names[i], strlen(labels->names[i]))) {
            return false;
        }
    }
    return labels->n > 0;
}

static void sort_names(fl_table_labels *labels)
{
    labels->integers = all_integers(labels);
    qsort(labels->names, (size_t)labels->n, sizeof *labels->names,
          labels->integers ? compare_integers : compare_texts);
    clear_slots(labels);
    for (int i = 0; i < labels->n; i++) {
        labels->slots[find_slot(labels, text_of(labels->names[i]))] = i;
    }
}

fl_status fl__table_labels_collect(const fl_table_rows *rows, fl_table_labels *out)
{
    fl_table_labels labels;
    fl_status status = init_labels(&labels, rows->content->path);
    if (status == FL_OK) {
        status = collect_names(rows, &labels);
    }
    if (status != FL_OK) {
        fl__table_labels_fini(&labels);
        return status;
    }
    sort_names(&labels);
    *out = labels;
    return FL_OK;
}

/* ---- given labels ---- */

static fl_status copy_names(const char *const *names, int n, fl_table_labels *labels)
{
    for (int i = 0; i < n; i++) {
        fl_text name = text_of(names[i]);
        size_t slot = find_slot(labels, name);
        if (labels->slots[slot] != NO_CLASS) {
            return fl_fail(FL_EINVAL, "%s: classes %d and %d have one label, '%s'", labels->from,
                           labels->slots[slot], i, names[i]);
        }
        FL_TRY(add_name(labels, slot, name));
    }
    labels->integers = all_integers(labels);
    return FL_OK;
}

fl_status fl__table_labels_copy(const char *from, const char *const *names, int n,
                                fl_table_labels *out)
{
    fl_table_labels labels;
    if (n > FL_TABLE_CLASSES_MAX) {
        return fl_fail(FL_EINVAL, "%s: %d labels found, at most %d allowed", from, n,
                       FL_TABLE_CLASSES_MAX);
    }
    fl_status status = init_labels(&labels, from);
    if (status == FL_OK) {
        status = copy_names(names, n, &labels);
    }
    if (status == FL_OK) {
        *out = labels;
    } else {
        fl__table_labels_fini(&labels);
    }
    return status;
}

void fl__table_labels_fini(fl_table_labels *labels)
{
    for (int i = 0; i < labels->n; i++) {
        fl_free(labels->names[i]);
    }
    fl_free(labels->names);
    fl_free(labels->slots);
    *labels = (fl_table_labels){0};
}

/* ---- classes ---- */

static fl_status refuse_label(const fl_table_labels *labels, const fl_table_rows *rows,
                              const fl_table_row *row)
{
    char names[FL_TABLE_NAMES_BYTES] = "", shown[FL_TABLE_SHOWN_BYTES];
    for (int i = 0; i < labels->n; i++) {
        fl__table_names_add(names, text_of(labels->names[i]));
    }
    return fl_fail(FL_EFORMAT, "%s: line %" PRId64 ": label '%s' found, allowed: a label of %s: %s",
                   rows->content->path, row->line,
                   fl__table_shown(row->cell[FL_TABLE_LABEL], shown), labels->from, names);
}

fl_status fl__table_labels_map(const fl_table_labels *labels, const fl_table_rows *rows,
                               bool optional, int32_t *classes)
{
    for (size_t i = 0; i < rows->n; i++) {
        const fl_text label = rows->row[i].cell[FL_TABLE_LABEL];
        classes[i] = NO_CLASS;
        if (label.bytes == NULL) {
            continue;
        }
        classes[i] = labels->slots[find_slot(labels, label)];
        if (classes[i] == NO_CLASS && !optional) {
            return refuse_label(labels, rows, &rows->row[i]);
        }
    }
    return FL_OK;
}
