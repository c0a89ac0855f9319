#include "control/agent/client/host_news.h"

#include "device/system/clock.h"

#include <stdio.h>
#include <string.h>

/* The index of the host that the frame is about; a new one is added. -1: of none. */
static int find_host(fl_hosts *hosts, int n_workers, const fl_agent_frame *frame)
{
    bool joined = frame->host.news == FL_HOST_NEWS_JOINED;
    int i = hosts == NULL ? -1 : fl_hosts_of(hosts, frame->rank);
    if (i > 0 && hosts->host[i].first == frame->rank) {
        bool is_same = !joined || strcmp(hosts->host[i].name, frame->host.name) == 0;
        return is_same ? i : -1;
    }
    bool is_next = hosts != NULL && joined && frame->rank == fl_hosts_n_ranks(hosts) &&
                   frame->host.n >= 1 && frame->host.n <= n_workers - frame->rank &&
                   fl_hosts_find(hosts, frame->host.name) < 0;
    return is_next ? fl_hosts_add(hosts, frame->host.name, frame->host.address, frame->host.n) : -1;
}

void fl_host_news_of_worker(const fl_hosts *hosts, const fl_host_record *records, fl_worker *w)
{
    int i = hosts == NULL ? -1 : fl_hosts_of(hosts, w->rank);
    if (i <= 0 || records[i].state != FL_HOST_STATE_LOST) {
        return;
    }
    snprintf(w->host_why, sizeof w->host_why, "with host %s (%s): %s", hosts->host[i].name,
             hosts->host[i].address, records[i].why);
    w->missed_us = w->missed_us != 0 ? w->missed_us : records[i].silent_us;
}

bool fl_host_news_take(fl_hosts *hosts, fl_host_record *records, int n_workers,
                       const fl_agent_frame *frame)
{
    int i = find_host(hosts, n_workers, frame);
    if (i < 0) {
        return false;
    }
    fl_host_record *r = &records[i];
    if (frame->host.news == FL_HOST_NEWS_JOINED) {
        fl_host *host = &hosts->host[i]; /* it may have another address than before */
        snprintf(host->address, sizeof host->address, "%s", frame->host.address);
        *r = (fl_host_record){
            .state = FL_HOST_STATE_JOINED, .joined_us = fl_now_us(), .kind = frame->host.kind};
    } else if (frame->host.news == FL_HOST_NEWS_NOTICE) {
        r->notice_us = fl_now_us();
        r->grace_us = frame->host.grace_ms * 1000;
    } else if (frame->host.news == FL_HOST_NEWS_CLOCK) {
        r->clock = frame->host.clock;
    } else {
        r->state = FL_HOST_STATE_LOST;
        r->ended_us = fl_now_us();
        r->silent_us = frame->host.silent_ms * 1000;
        r->unfit = frame->host.unfit;
        snprintf(r->why, sizeof r->why, "%s", frame->host.text);
    }
    return true;
}

void fl_host_news_of_sight(const fl_hosts *hosts, fl_host_sight *sight, const fl_agent_frame *frame)
{
    const fl_reach_answer *answer = &frame->reached;
    int i = hosts == NULL ? -1 : fl_hosts_of(hosts, frame->rank);
    if (i < 0 || sight == NULL || answer->number != sight->number || sight->complete) {
        return;
    }
    sight->complete = frame->rank == 0;
    for (int k = 0; k < answer->n; k++) {
        if (answer->host[k] < hosts->n && answer->host[k] != i) {
            fl_host_sight_add(sight, i, answer->host[k], 0, answer->why);
        }
    }
}
