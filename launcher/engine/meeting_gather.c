/* The head waits for all tasks (meeting.h). */
#include "launcher/engine/meeting.h"

#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/text/plain_name.h"
#include "launcher/engine/meeting_files.h"
#include "launcher/engine/meeting_life.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum {
    SHOW_MS = 10000, /* until the head says for whom it waits */
    DOUBT_MS = 2000, /* for a task to come of which only one of the same rank has ended, of this
                        start or of one before */
    DEVICES_MAX = 1 << 16,
};

static bool parse_host(const char *text, fl_meeting_host *host, char start[FL_MEETING_ID])
{
    struct in_addr address;
    char after;
    return sscanf(text, "%63s %15s %d %32s%c", host->name, host->address, &host->n_devices, start,
                  &after) == 5 &&
           after == '\n' && inet_pton(AF_INET, host->address, &address) == 1 &&
           fl_name_is_plain(host->name, FL_ENGINE_TEXT - 1) && host->n_devices >= 1 &&
           host->n_devices <= DEVICES_MAX;
}

static const char *name_of(const fl_engine_task *task, int rank, char name[FL_ENGINE_TEXT])
{
    if (task->nodes == NULL || !fl_node_list_get(task->nodes, rank, name)) {
        snprintf(name, FL_ENGINE_TEXT, "task %d", rank);
    }
    return name;
}

/* Those that are missing: "n2, n3". */
static void list_missing(const fl_engine_task *task, const fl_meeting_host *hosts, char *text,
                         size_t size_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < task->n && used < size_bytes; i++) {
        char name[FL_ENGINE_TEXT];
        if (hosts[i].n_devices == 0) {
            used += (size_t)snprintf(text + used, size_bytes - used, "%s%s", used == 0 ? "" : ", ",
                                     name_of(task, i, name));
        }
    }
}

/* A host that has come stays. One that has come to a start before has not come to this one.
 * FL_EFORMAT. */
static fl_status read_host(const fl_meeting *m, int rank, fl_meeting_host *host)
{
    char text[FL__MEETING_TEXT], name[FL__MEETING_NAME], start[FL_MEETING_ID];
    fl_meeting_host found = {.n_devices = 0};
    fl__meeting_name_task(rank, name);
    if (host->n_devices != 0 || !fl__meeting_read(m->dir, name, text)) {
        return FL_OK;
    }
    if (!parse_host(text, &found, start)) {
        return fl_fail(FL_EFORMAT, "%s/%s: no task wrote this", m->dir, name);
    }
    if (strcmp(start, m->start) == 0) {
        *host = found;
    }
    return FL_OK;
}

/* A task that may have ended has, if it had come to this start, or comes no more. */
static bool has_ended(const fl_meeting *m, int rank, const fl_meeting_host *host, int64_t doubt_us)
{
    fl_task_life life = fl_meeting_life(m, rank);
    return life == FL_TASK_HAS_ENDED ||
           (life == FL_TASK_MAY_HAVE_ENDED && (host->n_devices != 0 || fl_left_ms(doubt_us) == 0));
}

static fl_status fail_ended(const fl_meeting *m, const fl_engine_task *task, int rank)
{
    char host[FL_ENGINE_TEXT];
    bool unfit = fl_meeting_is_unfit(m, rank);
    return fl_fail(unfit ? FL_EINVAL : FL_EPEER,
                   "%s: task %d (%s) has ended before the run began%s", task->engine, rank,
                   name_of(task, rank, host),
                   unfit ? ", because its host cannot take part; that task says why" : "");
}

/* Read what has come; *all: nothing is missing. A task may end at any time, so its life is looked
 * at last. */
static fl_status read_tasks(const fl_meeting *m, const fl_engine_task *task, fl_meeting_host *hosts,
                            int64_t doubt_us, bool *all)
{
    *all = true;
    if (fl__meeting_is_gone(m->dir)) {
        return fl_fail(FL_EPEER, "%s: %s was removed before the run began", task->engine, m->dir);
    }
    for (int i = 0; i < m->n; i++) {
        FL_TRY(read_host(m, i, &hosts[i]));
        *all = *all && hosts[i].n_devices != 0;
        if (i != m->rank && has_ended(m, i, &hosts[i], doubt_us)) {
            return fail_ended(m, task, i);
        }
    }
    return FL_OK;
}

/* A signal for all tasks is also the head's, which is the one that tells how the start ended. */
static fl_status look_once(const fl_meeting *m, const fl_engine_task *task, int (*stop)(void),
                           fl_meeting_host *hosts, int64_t doubt_us, bool *all, int *number)
{
    *number = stop();
    return *number == 0
               ? read_tasks(m, task, hosts, doubt_us, all)
               : fl_fail(FL_ESTOPPED, "stopped by signal %d before the run began", *number);
}

fl_status fl_meeting_gather(const fl_meeting *m, const fl_engine_task *task, int64_t timeout_ms,
                            int (*stop)(void), fl_meeting_host *hosts, int *number)
{
    char missing[512];
    int64_t until_us = fl_deadline_us(timeout_ms), show_us = fl_deadline_us(SHOW_MS);
    int64_t doubt_us = fl_deadline_us(DOUBT_MS);
    memset(hosts, 0, (size_t)m->n * sizeof *hosts);
    for (bool all = false, shown = false; true; fl__meeting_nap()) {
        FL_TRY(look_once(m, task, stop, hosts, doubt_us, &all, number));
        if (all) {
            return FL_OK;
        }
        if (!shown && fl_left_ms(show_us) == 0) {
            list_missing(task, hosts, missing, sizeof missing);
            fl_log(FL_LOG_INFO, "%s: waits in %s for %s", task->engine, m->dir, missing);
            shown = true;
        }
        if (fl_left_ms(until_us) == 0) {
            list_missing(task, hosts, missing, sizeof missing);
            return fl_fail(FL_EDEADLINE,
                           "%s: no sign of %s in %s for %lld s; is it on a file system that all "
                           "hosts share?",
                           task->engine, missing, m->dir, (long long)timeout_ms / 1000);
        }
    }
}
