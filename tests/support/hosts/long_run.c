#include "support/hosts/long_run.h"

#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { ENDLESS = 100000000, COMPARED = 12, DETECT_MS = 2000 };

int long_run_set_up(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

int long_run_n_lost(const net_hosts *h)
{
    return net_hosts_n_events(h, "worker.lost", "\"rank\": 1");
}

void long_run_start_of(net_hosts *h, const char *plan, const char *of_agent, int detect_ms)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job,
             NET_JOB
             "--set train.max_steps=%d --set train.epochs=100000 %s --set elastic.enabled=false "
             "--set fault.detect=%dms",
             ENDLESS, plan, detect_ms);
    net_hosts_start_head(h, job);
    net_hosts_start_agent_for(h, 1, of_agent);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
}

void long_run_start_with(net_hosts *h, const char *plan, const char *of_agent)
{
    long_run_start_of(h, plan, of_agent, DETECT_MS);
}

void long_run_start(net_hosts *h)
{
    long_run_start_with(h, REPLICAS, "");
}

void long_run_stop_head(const net_hosts *h)
{
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > before + COMPARED);
    kill(h->head, SIGTERM);
}

void long_run_stop(net_hosts *h, int agent_code)
{
    long_run_stop_head(h);
    net_hosts_expect_codes(h, LONG_RUN_STOPPED, agent_code);
}

void long_run_check(const net_hosts *h)
{
    char more[64];
    snprintf(more, sizeof more, "--set train.max_steps=%d", COMPARED);
    net_hosts_run_alone(h, more);
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
}
