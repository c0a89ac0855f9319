/* Every other task waits for the head (meeting.h). */
#include "launcher/engine/meeting.h"

#include "device/system/clock.h"
#include "launcher/engine/meeting_files.h"
#include "launcher/engine/meeting_life.h"
#include "launcher/engine/meeting_start.h"
#include "launcher/engine/meeting_tidy.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GONE_CODE = 3,   /* of a head whose code nobody knows any more */
    SIGN_MS = 2000,  /* for a head of which nothing is known to come, or to end a start */
    WORD_MS = 10000, /* for a head that ends to say with which code */
};

/* ---- the end of the head ---- */

static bool read_last_word(const char *dir, int *exit_code)
{
    char text[FL__MEETING_TEXT];
    bool said = fl__meeting_read(dir, FL__MEETING_OVER, text);
    if (said) {
        *exit_code = (int)strtol(text, NULL, 10) & 0xff;
    }
    return said;
}

static fl_status fail_with(int code)
{
    return fl_fail(FL_EFAILED, "the head has ended with exit code %d before the run began", code);
}

/* The head may say its last word, and remove the folder, between two looks. */
static fl_status fail_removed(const char *dir, int *exit_code)
{
    *exit_code = GONE_CODE;
    return fl_fail(FL_EFAILED, "the head has ended before the run began, and removed %s", dir);
}

fl_status fl_meeting_check_head(const fl_meeting *m, int *exit_code)
{
    char left[FL__MEETING_NAME];
    if (read_last_word(m->dir, exit_code)) {
        return fail_with(*exit_code);
    }
    bool is_gone = fl__meeting_is_gone(m->dir);
    bool has_ended = !is_gone && fl_meeting_life(m, 0) >= FL_TASK_MAY_HAVE_ENDED;
    if (has_ended && read_last_word(m->dir, exit_code)) {
        return fail_with(*exit_code);
    }
    if (!is_gone && !has_ended) {
        return FL_OK;
    }
    if (!has_ended || fl__meeting_is_gone(m->dir)) {
        return fail_removed(m->dir, exit_code);
    }
    *exit_code = GONE_CODE;
    fl__meeting_name_left(0, left);
    return fl__meeting_has(m->dir, left)
               ? fl_fail(FL_EFAILED, "the head has ended before the run began, and could not write "
                                     "with which exit code")
               : fl_fail(FL_EFAILED, "the head was killed before the run began");
}

/* A head that has ended, and that this task has not seen alive, may be of a start before: this
 * start's may come yet. */
static bool may_come_yet(const fl_meeting *m, fl_head_sight sight, int64_t until_us)
{
    if (sight != FL_HEAD_HAS_COME || m->start[0] != '\0') {
        return sight == FL_HEAD_NOT_COME;
    }
    bool has_ended = fl__meeting_has(m->dir, FL__MEETING_OVER) ||
                     fl_meeting_life(m, 0) >= FL_TASK_MAY_HAVE_ENDED;
    return has_ended && fl_left_ms(until_us) > 0;
}

/* *waits: for a head that may come. FL_EFAILED if this start's has ended. */
static fl_status look_at_head(fl_meeting *m, int64_t until_us, bool *waits, int *exit_code)
{
    if (fl__meeting_is_gone(m->dir)) {
        return fail_removed(m->dir, exit_code);
    }
    *waits = may_come_yet(m, fl__meeting_look(m), until_us);
    return *waits ? FL_OK : fl_meeting_check_head(m, exit_code);
}

/* ---- a task that has ended, and a head of which nothing is known ---- */

/* Of this start, as far as this task can know it. */
static bool has_any_left(const fl_meeting *m)
{
    bool any = false;
    char start[FL_MEETING_ID];
    DIR *folder = opendir(m->dir);
    for (const struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;) {
        any = any || (strncmp(e->d_name, FL_MEETING_LEFT, strlen(FL_MEETING_LEFT)) == 0 &&
                      fl_meeting_read_left(m->dir, e->d_name, start) &&
                      fl_meeting_end_in(m, start) != FL_TASK_NOT_KNOWN);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return any;
}

/* The run does not begin without a task that has left. A head that lives says so soon. *until_us:
 * when it should have said it; 0: no task has left. */
static fl_status check_others(const fl_meeting *m, int64_t *until_us, int *exit_code)
{
    bool waits = fl_meeting_life(m, 0) == FL_TASK_NOT_KNOWN && has_any_left(m);
    if (!waits) {
        *until_us = 0;
        return FL_OK;
    }
    *until_us = *until_us != 0 ? *until_us : fl_deadline_us(SIGN_MS);
    if (fl_left_ms(*until_us) > 0) {
        return FL_OK;
    }
    *exit_code = GONE_CODE;
    return fl_fail(FL_EFAILED, "another task has ended before the run began, and there is no sign "
                               "of the head");
}

/* ---- the wait ---- */

/* A signal that ends this task may be for all: its end waits for the head's. *until_us: for as
 * long; 0: there was no signal. */
static fl_status check_stop(int (*stop)(void), int64_t *until_us, int *number)
{
    int now = stop();
    if (now != 0 && *number == 0) {
        *number = now;
        *until_us = fl_deadline_us(FL_MEETING_HOLD_MS);
    }
    return *number == 0 || fl_left_ms(*until_us) > 0
               ? FL_OK
               : fl_fail(FL_ESTOPPED, "stopped by signal %d before the run began", *number);
}

fl_status fl_meeting_await(fl_meeting *m, int64_t timeout_ms, int (*stop)(void),
                           char endpoint[FL_MEETING_ENDPOINT], int *exit_code)
{
    char text[FL__MEETING_TEXT];
    int number = 0;
    int64_t until_us = fl_deadline_us(timeout_ms), sign_us = fl_deadline_us(SIGN_MS);
    int64_t stop_us = 0, word_us = 0;
    for (bool waits = true; fl_left_ms(until_us) > 0; fl__meeting_nap()) {
        FL_TRY(look_at_head(m, number == 0 ? sign_us : 0, &waits, exit_code));
        fl_status status = check_stop(stop, &stop_us, &number);
        if (status != FL_OK) {
            *exit_code = number;
            return status;
        }
        if (!waits && number == 0 && fl__meeting_read(m->dir, FL__MEETING_JOIN, text)) {
            text[FL_MEETING_ENDPOINT - 1] = '\0';
            memcpy(endpoint, text, FL_MEETING_ENDPOINT);
            return FL_OK;
        }
        FL_TRY(check_others(m, &word_us, exit_code));
    }
    return fl_fail(FL_EDEADLINE,
                   "no sign of the head in %s for %lld s; is it on a file system that all hosts "
                   "share?",
                   m->dir, (long long)timeout_ms / 1000);
}

int fl_meeting_last_word(const fl_meeting *m)
{
    int code = GONE_CODE;
    for (int64_t until_us = fl_deadline_us(WORD_MS);
         fl_left_ms(until_us) > 0 && fl_meeting_check_head(m, &code) == FL_OK; fl__meeting_nap()) {
    }
    return code;
}
