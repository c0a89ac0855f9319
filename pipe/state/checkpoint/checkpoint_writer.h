/* One worker's part of each checkpoint, written in the background:
 *
 *     training thread  ① list the files that this worker writes            begin
 *                      ② copy their contents into host memory              begin
 *     writer's thread  ③ write and hash each file, or link it              write_files
 *                      ④ report each file that is on the disk, then the    on_file, on_part
 *                        part
 *
 * Training stands still for ① and ② only. Where the hosts of a run share no files, the thread of a
 * worker on another host sends its files in ③, and that of a worker on the head receives each one
 * before it writes it. All list their files in one order, so that no two wait for each other. The
 * files of a layer that has been frozen since before
 * the newest durable checkpoint are linked to that checkpoint's files; where the file system links
 * no files, they are copied. Before ③ links a file, it compares the file's bytes with the hash in
 * that checkpoint's manifest. A file that is missing is written from memory. One that is damaged
 * ends the part with FL_EFORMAT, and the next checkpoint writes it from memory.
 *
 * Host memory: as large as the files of one part that were copied, kept from one checkpoint to the
 * next: 4 bytes for each weight and for each moment (with AdamW 12 for each parameter) of the
 * layers that this worker writes. The replicas of a stage share its layers. After the first
 * checkpoint of a plan nothing is allocated. */
#ifndef FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_WRITER_H
#define FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_WRITER_H

#include "autodp/message.h"
#include "pipe/state/checkpoint/checkpoint_files.h"
#include "pipe/state/checkpoint/checkpoint_store.h"
#include "pipe/state/migrate.h"

typedef struct fl_checkpoint_writer fl_checkpoint_writer;

typedef struct fl_checkpoint_writer_options {
    const fl_model *model; /* borrowed, as everything here */
    fl_device *device;
    const fl_checkpoint_store *store;
    int rank;
    int n_moments; /* of the optimizer */
    /* A file is on the disk; then, once for each checkpoint, the part has ended. Called by the
     * writer's thread, or by the training thread for a part that ends at once. */
    void (*on_file)(void *context, const fl_checkpoint_file_report *report);
    void (*on_part)(void *context, const fl_checkpoint_part_report *report);
    void *context;
} fl_checkpoint_writer_options;

/* Of a run whose hosts share no files: workers of other hosts send their files to workers of the
 * head, which write them (fl_head_keeper). All members begin a checkpoint together. */
typedef struct fl_checkpoint_far {
    int n_head;                 /* ranks below it are on the head */
    fl_message_group *messages; /* until fl_checkpoint_writer_leave_messages */
    int64_t deadline_ms;        /* for each piece of a file */
} fl_checkpoint_far;

/* What a worker has of the run's state at a control point. */
typedef struct fl_checkpoint_state {
    const fl_plan *plan;
    const fl_params *params; /* NULL: this worker has no stage */
    const fl_parked *parked;
    const fl_checkpoint_far *far; /* NULL: each worker writes its own files */
} fl_checkpoint_state;

/* Where a layer's moments lie on the worker that writes them: with the layer on its device or, of a
 * frozen one, in the memory that keeps them. */
const float *fl_checkpoint_moments(const fl_checkpoint_state *state, int layer, bool *on_host);

fl_status fl_checkpoint_writer_create(const fl_checkpoint_writer_options *options,
                                      fl_checkpoint_writer **out) FL_MUST_CHECK;

/* A checkpoint that is not finished is abandoned, without a report. *writer becomes NULL; NULL is
 * fine. If the disk does not return within a few seconds, its thread and its memory are left to the
 * process's end. */
void fl_checkpoint_writer_destroy(fl_checkpoint_writer **writer);

/* From `step` on this plan trains: at the start of the run, and after each transition. */
void fl_checkpoint_writer_follow(fl_checkpoint_writer *writer, const fl_plan *plan, int64_t step);

/* Take the memory for the next checkpoint ahead, in the background. Without it, or while a
 * checkpoint is being written, begin takes it. */
void fl_checkpoint_writer_prepare(fl_checkpoint_writer *writer, const fl_checkpoint_state *state);

/* ① and ② of a checkpoint after `step` steps, which then continues in the background. serial: of
 * the request, for the reports; 0: nobody has asked for it. A checkpoint
 * that cannot be written, or that comes while another is being written, ends with a report; only a
 * failure of the device is returned, and with `far`, one for which others would wait: FL_ENOMEM. */
fl_status fl_checkpoint_writer_begin(fl_checkpoint_writer *writer, const fl_checkpoint_state *state,
                                     int64_t step, int64_t serial) FL_MUST_CHECK;

/* Compare the files that the next checkpoint would link now, in the calling thread, so that it
 * writes those that are damaged: for a last checkpoint, which no other one follows. Nothing is
 * being written. */
void fl_checkpoint_writer_check_links(fl_checkpoint_writer *writer,
                                      const fl_checkpoint_state *state);

/* The checkpoint after `step` steps was given up, and may be written again: files that it has left
 * are replaced. Without this, they make its part fail with FL_EBUSY. */
void fl_checkpoint_writer_replace(fl_checkpoint_writer *writer, int64_t step);

/* Before the message group is closed: wait until the writer does not use it. give_up: the
 * checkpoint whose files are on their way fails, and the message group is broken; otherwise they
 * arrive first. */
void fl_checkpoint_writer_leave_messages(fl_checkpoint_writer *writer, bool give_up);

/* Whether a checkpoint is being written. Waits for one whose report is on its way. */
bool fl_checkpoint_writer_is_busy(fl_checkpoint_writer *writer);

/* Wait until no checkpoint is being written: FL_EDEADLINE. */
fl_status fl_checkpoint_writer_wait(fl_checkpoint_writer *writer,
                                    int64_t deadline_us) FL_MUST_CHECK;

/* Bytes of host memory that it holds for copies. Threads: the training thread, while nothing is
 * written. */
int64_t fl_checkpoint_writer_bytes(const fl_checkpoint_writer *writer);

#endif
