#include "control/checkpoint/collection.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t longer_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void fl_collection_begin(fl_collection *collection, int64_t step, int64_t serial)
{
    memset(collection, 0, sizeof *collection);
    collection->step = step;
    collection->serial = serial;
}

/* The first reason stays. */
static void note_failure(fl_collection *c, fl_status status, int rank, const char *why)
{
    if (c->status == FL_OK) {
        c->status = status;
        c->failed_rank = rank;
        snprintf(c->why, sizeof c->why, "worker %d: %s", rank, why);
    }
}

static bool has_file(const fl_collection *c, const char *name)
{
    for (int i = 0; i < c->n_files; i++) {
        if (strcmp(c->file[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Places stay free for the controller's own files. */
void fl_collection_file(fl_collection *c, int rank, const fl_checkpoint_file_report *report)
{
    fl_checkpoint_entry entry = {.bytes = report->bytes, .xxh64 = report->xxh64};
    char why[FL_CHECKPOINT_NAME_MAX + 40];
    fl_checkpoint_file_name(report->part, report->layer, entry.name);
    if (c->n_files == FL_CHECKPOINT_FILES_MAX - FL_CHECKPOINT_OWN_FILES ||
        has_file(c, entry.name)) {
        snprintf(why, sizeof why, "%s was written twice", entry.name);
        note_failure(c, FL_EINTERNAL, rank, why);
        return;
    }
    c->linked[c->n_files] = report->linked;
    c->writer[c->n_files] = rank;
    c->file[c->n_files++] = entry;
}

void fl_collection_part(fl_collection *c, int rank, const fl_checkpoint_part_report *report)
{
    if (c->reported[rank]) {
        note_failure(c, FL_EINTERNAL, rank, "reported its part twice");
        return;
    }
    if (c->n_parts > 0 && c->generation != report->generation) {
        note_failure(c, FL_EINTERNAL, rank, "wrote the state of another generation");
    }
    if (report->status != FL_OK && report->text[0] == '\0') {
        note_failure(c, report->status, rank, fl_status_text(report->status));
    } else if (report->status != FL_OK && c->status == FL_OK) { /* the text names the worker */
        c->status = report->status;
        c->failed_rank = rank;
        snprintf(c->why, sizeof c->why, "%s", report->text);
    }
    c->generation = report->generation;
    c->reported[rank] = true;
    c->n_parts++;
    c->bytes += report->bytes;
    c->copy_us = longer_of(c->copy_us, report->copy_us);
    c->write_us = longer_of(c->write_us, report->write_us);
}

fl_status fl_collection_finish(const fl_collection *c, const fl_checkpoint *before,
                               fl_checkpoint *checkpoint)
{
    if (c->status != FL_OK) {
        return fl_fail(FL_EFAILED, "%s", c->why);
    }
    for (int i = 0; i < c->n_files; i++) {
        const fl_checkpoint_entry *entry = &c->file[i];
        if (c->linked[i]) {
            entry = before == NULL ? NULL : fl_checkpoint_find(before, entry->name);
        }
        if (entry == NULL) {
            return fl_fail(FL_EFAILED, "%s is a link to a checkpoint that does not have it",
                           c->file[i].name);
        }
        checkpoint->file[i] = *entry;
    }
    checkpoint->n_files = c->n_files;
    return FL_OK;
}

int64_t fl_collection_linked_bytes(const fl_collection *c, const fl_checkpoint *checkpoint)
{
    int64_t bytes = 0;
    for (int i = 0; i < c->n_files; i++) {
        bytes += c->linked[i] ? checkpoint->file[i].bytes : 0;
    }
    return bytes;
}
