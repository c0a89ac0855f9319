/* What both files of the checkpoint writer share: checkpoint_writer.c has ① and ②, the thread and
 * the calls, checkpoint_output.c has ③ and ④. */
#ifndef FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_WRITER_PARTS_H
#define FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_WRITER_PARTS_H

#include "pipe/state/background.h"
#include "pipe/state/checkpoint/checkpoint_writer.h"

#include <pthread.h>
#include <stdatomic.h>

/* One file that this worker writes, or sends to the worker that writes it. */
typedef struct fl__checkpoint_item {
    fl_checkpoint_part part;
    int layer;
    int from, to; /* the worker that has it, and the one that writes it */
    bool linked;
    int64_t at; /* where its contents lie in the buffer */
} fl__checkpoint_item;

struct fl_checkpoint_writer {
    fl_checkpoint_writer_options o;
    int n_layers;
    int64_t *frozen_since; /* [n_layers] the step; INT64_MAX: the layer trains */
    int64_t *damaged_at;   /* [FL_CHECKPOINT_PARTS * n_layers] the checkpoint in which the file was
                              found damaged; -1: none */

    /* of the next or present checkpoint: the thread's while it works */
    fl__checkpoint_item *items; /* [FL_CHECKPOINT_PARTS * n_layers] */
    int n_items;
    _Atomic int64_t replaced_step; /* of the checkpoint whose files may be replaced; -1: none */
    int64_t kept_step;             /* to whose files items are linked */
    fl_st_layout *layout; /* [FL_CHECKPOINT_PARTS * n_layers]; without a header: not made yet */
    void *memory;
    int64_t memory_bytes;
    char *buffer; /* the files, one after the other: in `memory`, on FL_CHECKPOINT_ALIGNMENT */
    int64_t copied_us;
    fl_checkpoint_far far; /* while it exchanges */
    fl_checkpoint_part_report report;

    fl_background background;
    atomic_bool closing;
    atomic_bool reports;         /* the thread has written all, and only reports it */
    pthread_mutex_t report_lock; /* held for each report, and to end them */
};

/* ---- checkpoint_writer.c ---- */

/* Where a file stands in damaged_at and layout. */
int fl__checkpoint_index_of(const fl_checkpoint_writer *w, const fl__checkpoint_item *file);
fl_st_layout *fl__checkpoint_layout_of(const fl_checkpoint_writer *w,
                                       const fl__checkpoint_item *file);

/* The folder of the checkpoint to whose files items are linked; -1: nothing can be linked. */
int fl__checkpoint_open_kept(const fl_checkpoint_writer *w);

/* ---- checkpoint_output.c ---- */

/* ③ and ④: write or link every item, wait for the disk, and report. The thread's. */
void fl__checkpoint_write(fl_checkpoint_writer *w);

/* Whether an item may be linked. *file_fd: the older file, open, or -1. FL_EFORMAT: it does not
 * agree with the manifest, and is not linked any more. */
fl_status fl__checkpoint_check_link(fl_checkpoint_writer *w, int kept_fd,
                                    const fl__checkpoint_item *file, int *file_fd) FL_MUST_CHECK;

/* Put the present error into a report, with the worker and the folder. */
void fl__checkpoint_report_failure(const fl_checkpoint_writer *w, fl_checkpoint_part_report *report,
                                   fl_status status);

#endif
