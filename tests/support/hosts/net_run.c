#include "support/hosts/net_run.h"

#include "support/lines.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

int net_hosts_n_steps(const net_hosts *h)
{
    char path[FOLDER_SIZE + 32];
    int n = 0, c;
    snprintf(path, sizeof path, "%s/run/steps.jsonl", h->dir);
    FILE *file = fopen(path, "r");
    while (file != NULL && (c = fgetc(file)) != EOF) {
        n += c == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

bool net_hosts_log_has(const net_hosts *h, const char *log, const char *text)
{
    return net_hosts_shell("grep -qF '%s' %s/%s", text, h->dir, log);
}

int net_hosts_n_events(const net_hosts *h, const char *event, const char *text)
{
    char dir[FOLDER_SIZE + 16];
    snprintf(dir, sizeof dir, "%s/run", h->dir);
    return count_events(dir, event, text);
}

pid_t net_hosts_worker_pid(const net_hosts *h, int rank)
{
    char dir[FOLDER_SIZE + 16];
    int pid = 0;
    snprintf(dir, sizeof dir, "%s/run", h->dir);
    json_t *events = lines_with(dir, "events.jsonl", "\"pid\""), *event;
    FOR_EACH(event, events)
    {
        json_t *workers = json_object_get(event, "workers"), *w;
        FOR_EACH(w, workers)
        {
            bool is_it = json_object_get(w, "pid") != NULL && number(w, "rank") == rank;
            pid = is_it ? number(w, "pid") : pid;
        }
    }
    json_decref(events);
    assert_true(pid > 0);
    return pid;
}

pid_t net_hosts_event_pid(const net_hosts *h, const char *name, int rank)
{
    char dir[FOLDER_SIZE + 16], text[64];
    int pid = 0;
    snprintf(dir, sizeof dir, "%s/run", h->dir);
    snprintf(text, sizeof text, "\"event\": \"%s\"", name);
    json_t *events = lines_with(dir, "events.jsonl", text), *event;
    FOR_EACH(event, events)
    {
        pid = number(event, "rank") == rank ? number(event, "pid") : pid;
    }
    json_decref(events);
    assert_true(pid > 0);
    return pid;
}

void net_hosts_check(const net_hosts *h, int n_steps, int compared)
{
    double worst = 0.0;
    json_t *lines[2];
    for (int i = 0; i < 2; i++) {
        char dir[FOLDER_SIZE + 16];
        snprintf(dir, sizeof dir, "%s/%s", h->dir, i == 0 ? "alone" : "run");
        lines[i] = lines_with(dir, "steps.jsonl", "");
        assert_true(i == 0 ? length(lines[i]) >= compared : length(lines[i]) == n_steps);
    }
    for (size_t step = 0; step < (size_t)compared; step++) {
        double one = json_number_value(json_object_get(json_array_get(lines[0], step), "loss"));
        double other = json_number_value(json_object_get(json_array_get(lines[1], step), "loss"));
        assert_true(isfinite(other) && one > 0.0);
        worst = fmax(worst, fabs(other - one) / one);
    }
    json_decref(lines[0]);
    json_decref(lines[1]);
    print_message("%d losses differ by at most %.2e from those of one worker\n", compared, worst);
    assert_true(worst <= 1e-5);
    assert_true(net_hosts_shell("test -s %s/run/model/model.safetensors", h->dir));
    assert_true(net_hosts_shell("'%s/frostline' ledger %s/run", FL_BINARY_DIR, h->dir));
}

int net_hosts_layers_of_second(const net_hosts *h, int n_layers)
{
    int cut = 0, first = -1;
    assert_true(net_hosts_shell("grep plan.chosen %s/run/events.jsonl | head -1 | sed "
                                "'s/.*\"first\": .0, \\([0-9]*\\), .*\"ranks\": .\\([01]\\),.*/"
                                "\\1 \\2/'",
                                h->dir));
    assert_int_equal(sscanf(net_hosts_said(), "%d %d", &cut, &first), 2);
    return first == 0 ? n_layers - cut : cut;
}
