#include "pipe/state/background.h"

#include "device/system/clock.h"
#include "device/system/thread.h"
#include "device/system/thread_priority.h"

enum { FINI_MS = 5000 };

void fl_background_init(fl_background *b, const char *name, void *context)
{
    *b = (fl_background){.name = name, .context = context};
    pthread_mutex_init(&b->lock, NULL);
    fl_condition_init(&b->changed);
}

/* ---- the thread ---- */

static void *thread_main(void *argument)
{
    fl_background *b = argument;
    fl_thread_lower_priority();
    pthread_mutex_lock(&b->lock);
    while (!b->closing || b->work != NULL) {
        fl_background_work now = b->work;
        if (now == NULL) {
            pthread_cond_wait(&b->changed, &b->lock);
            continue;
        }
        pthread_mutex_unlock(&b->lock);
        now(b->context);
        pthread_mutex_lock(&b->lock);
        b->work = NULL;
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

fl_status fl_background_start(fl_background *b, fl_background_work work)
{
    if (!b->started) {
        FL_TRY(fl_thread_start(&b->thread, thread_main, b, "a thread in the background"));
        pthread_setname_np(b->thread, b->name);
        b->started = true;
    }
    pthread_mutex_lock(&b->lock);
    b->work = work;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return FL_OK;
}

/* ---- waits ---- */

fl_background_work fl_background_now(fl_background *b)
{
    pthread_mutex_lock(&b->lock);
    fl_background_work now = b->work;
    pthread_mutex_unlock(&b->lock);
    return now;
}

void fl_background_await(fl_background *b, fl_background_work work)
{
    pthread_mutex_lock(&b->lock);
    while (b->work == work) {
        pthread_cond_wait(&b->changed, &b->lock);
    }
    pthread_mutex_unlock(&b->lock);
}

bool fl_background_wait(fl_background *b, int64_t deadline_us)
{
    pthread_mutex_lock(&b->lock);
    while (b->work != NULL && fl_condition_wait_until(&b->changed, &b->lock, deadline_us)) {
    }
    bool idle = b->work == NULL;
    pthread_mutex_unlock(&b->lock);
    return idle;
}

/* ---- the message group ---- */

void fl_background_use(fl_background *b, fl_message_group *messages)
{
    pthread_mutex_lock(&b->lock);
    b->messages = messages;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

void fl_background_leave(fl_background *b, bool give_up)
{
    pthread_mutex_lock(&b->lock);
    if (give_up && b->messages != NULL) {
        fl_message_abort(b->messages, FL_ESTALE);
    }
    while (b->messages != NULL) {
        pthread_cond_wait(&b->changed, &b->lock);
    }
    pthread_mutex_unlock(&b->lock);
}

/* ---- the end ---- */

bool fl_background_fini(fl_background *b)
{
    if (b->started) {
        fl_background_leave(b, true);
        pthread_mutex_lock(&b->lock);
        b->closing = true;
        pthread_cond_broadcast(&b->changed);
        pthread_mutex_unlock(&b->lock);
        if (!fl_background_wait(b, fl_deadline_us(FINI_MS))) {
            pthread_detach(b->thread);
            return false;
        }
        pthread_join(b->thread, NULL);
    }
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    return true;
}
