/* A thread beside training that does one piece of work after another, and may use the message group
 * meanwhile (autodp/message_pieces.h): what checkpoints and snapshots do while training goes on. */
#ifndef FL_PIPE_STATE_BACKGROUND_H
#define FL_PIPE_STATE_BACKGROUND_H

#include "autodp/message.h"

#include <pthread.h>
#include <stdbool.h>

typedef void (*fl_background_work)(void *context);

/* The fields are background.c's. */
typedef struct fl_background {
    const char *name; /* of the thread */
    void *context;    /* of all its work */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    bool closing;
    fl_background_work work;    /* NULL: the thread is idle */
    fl_message_group *messages; /* that the work uses; NULL: none */
} fl_background;

/* name: at most 15 characters; borrowed, as the context. The thread starts with the first work. */
void fl_background_init(fl_background *background, const char *name, void *context);

/* Abort the message group if the work uses it, and wait for the work's end. False: it did not end
 * within a few seconds. The thread then has the context and `background` until the process ends. */
bool fl_background_fini(fl_background *background);

/* Only while the thread is idle. FL_ENOMEM. */
fl_status fl_background_start(fl_background *background, fl_background_work work) FL_MUST_CHECK;

/* What the thread does now; NULL: nothing. */
fl_background_work fl_background_now(fl_background *background);

/* Wait while the thread does this work. */
void fl_background_await(fl_background *background, fl_background_work work);

/* Wait until the thread is idle; false once the deadline has passed. */
bool fl_background_wait(fl_background *background, int64_t deadline_us);

/* Before work starts that uses the message group; and the work itself, as soon as it does not any
 * more: NULL. */
void fl_background_use(fl_background *background, fl_message_group *messages);

/* Before the message group is closed: wait until the work does not use it. give_up: abort the group
 * first, which ends the work's waits. */
void fl_background_leave(fl_background *background, bool give_up);

#endif
