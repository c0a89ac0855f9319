#include "control/agent/host_news.h"

#include "device/clock.h"
#include "device/log.h"

#include <stdio.h>

void fl_host_news_take(const fl_hosts *hosts, fl_host_record *records, const fl_agent_frame *frame)
{
    int i = hosts == NULL ? 0 : fl_hosts_of(hosts, frame->rank);
    if (i == 0 || hosts->host[i].first != frame->rank) {
        fl_log(FL_LOG_WARN, "dropped news of a host with the first rank %d", frame->rank);
        return;
    }
    fl_host_record *r = &records[i];
    if (frame->host.news == FL_HOST_NEWS_JOINED) {
        *r = (fl_host_record){.state = FL_HOST_STATE_JOINED, .joined_us = fl_now_us()};
    } else if (frame->host.news == FL_HOST_NEWS_NOTICE) {
        r->notice_us = fl_now_us();
        r->grace_us = frame->host.grace_ms * 1000;
    } else {
        r->state = FL_HOST_STATE_LOST;
        r->ended_us = fl_now_us();
        snprintf(r->why, sizeof r->why, "%s", frame->host.text);
    }
}
