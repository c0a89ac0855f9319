/* From the fork to the last exit. The order of opening matters: what can be wrong with the run
 * directory comes first, then the forks, and only then what makes threads. */
#include "control/head.h"

#include "control/controller.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { TURN_MS = 100 };

static fl_status open_tables(fl_head *head)
{
    const fl_job *job = head->options->job;
    size_t n = (size_t)head->n_workers;
    FL_TRY(fl_alloc_array(n, sizeof *head->workers, (void **)&head->workers));
    FL_TRY(fl_alloc_array(n, sizeof *head->times, (void **)&head->times));
    FL_TRY(fl_alloc_array(n, sizeof *head->all_times, (void **)&head->all_times));
    /* The records of a step, for which there will be memory then, too. */
    FL_TRY(fl_alloc_array((size_t)job->train.batch, sizeof *head->ids, (void **)&head->ids));
    head->ids_capacity = (size_t)job->train.batch;
    FL_TRY(fl_store_create(&head->store));
    FL_TRY(fl_flight_create(head->n_workers, &head->flight));
    FL_TRY(fl_alloc_array(n, sizeof *head->survey, (void **)&head->survey));
    FL_TRY(fl_stragglers_open(head));
    FL_TRY(fl_decide_open(head));
    FL_TRY(fl_learn_open(head));
    head->limits = fl_watch_limits_of(job->fault.detect_ms, job->fault.deadline_ms);
    fl_tally_init(&head->tally, head->options->n_samples, job->train.batch, head->options->n_steps,
                  head->options->n_epochs, job->train.evaluate);
    fl_progress_init(&head->progress, stdout, &head->plan);
    return FL_OK;
}

static fl_status open_files(fl_head *head)
{
    const fl_head_options *o = head->options;
    FL_TRY(fl_runfiles_open(&head->files, o->dir_fd));
    return fl_ledger_create(o->dir_fd, o->n_samples, o->job->train.seed, &head->ledger);
}

static fl_status open_all(fl_head *head)
{
    char endpoint[64];
    FL_TRY(open_tables(head));
    FL_TRY(open_files(head));
    fl_inbox_endpoint(head->options->dir_fd, endpoint, sizeof endpoint);
    FL_TRY(fl_spawn_workers(head->options, &head->signals, endpoint, head->flight, head->workers));
    fl_status status = fl_signals_open(&head->signals);
    if (status == FL_OK) {
        status = fl_inbox_open(head);
    }
    if (status == FL_OK) {
        status = fl_ctl_open(head);
    }
    if (status == FL_OK) {
        status = fl_metrics_open(head);
    }
    if (status != FL_OK) {
        fl_spawn_kill(head->workers, head->n_workers);
    }
    return status;
}

static void close_all(fl_head *head)
{
    fl_metrics_close(head);
    fl_ctl_close(head);
    fl_inbox_close(head);
    if (fl_ledger_close(&head->ledger) != FL_OK) {
        fl_log(FL_LOG_WARN, "the ledger is incomplete: %s", fl_errmsg());
    }
    fl_store_destroy(&head->store);
    fl_runfiles_close(&head->files);
    fl_signals_restore(&head->signals);
    fl_trace_close(head);
    fl_stragglers_close(head);
    fl_flight_destroy(&head->flight);
    fl_free(head->survey);
    fl_free(head->workers);
    fl_free(head->times);
    fl_free(head->all_times);
    fl_free(head->ids);
    fl_decide_close(head);
    fl_learn_close(head);
}

static void run_loop(fl_head *head)
{
    head->looked_us = head->moved_us = head->told_stall_us = fl_now_us();
    while (head->state != FL_HEAD_OVER) {
        zmq_pollitem_t items[2 + FL_CTL_POLL_MAX] = {{head->socket, 0, ZMQ_POLLIN, 0},
                                                     {NULL, head->signals.fd, ZMQ_POLLIN, 0}};
        int turn_ms = fl_ctl_turn_ms(head, fl_trace_turn_ms(head, TURN_MS));
        zmq_poll(items, 2 + fl_ctl_poll(head, items + 2), turn_ms);
        fl_inbox_read(head);
        fl_ending_signals(head);
        if (head->state != FL_HEAD_OVER) {
            fl_ending_watch(head, fl_now_us());
            fl_elastic_watch(head, fl_now_us());
        }
        fl_trace_watch(head);
        fl_ctl_watch(head);
        fl_metrics_watch(head);
        fl_progress_update(&head->progress, &head->tally);
    }
    fl_inbox_read(head); /* what a worker sent before it left */
    if (fl_tally_epoch_over(&head->tally, true)) {
        fl_story_epoch(head);
    }
    fl_progress_hide(&head->progress);
}

/* Everybody left: what does that make of the run? */
static void conclude(fl_head *head)
{
    bool complete = head->tally.steps >= head->options->n_steps;
    bool asked = head->n_stops > 0 || head->tally.n_steps < head->options->n_steps;
    if (head->status == FL_OK && asked && !complete) {
        head->status = FL_ESTOPPED;
    }
    if (head->status == FL_OK || head->status == FL_ESTOPPED) {
        fl_status proof = fl_ending_prove(head);
        if (proof != FL_OK && head->n_stops < 2) {
            head->status = proof;
            snprintf(head->message, sizeof head->message, "%s", fl_errmsg());
        }
    }
    if (head->lost >= 0) {
        fl_ending_explain(head);
    }
    if (head->status == FL_ESTOPPED) {
        snprintf(head->message, sizeof head->message,
                 "stopped by the user after %" PRId64 " of %" PRId64 " steps", head->tally.steps,
                 head->options->n_steps);
    }
}

static void fill_result(const fl_head *head, fl_run_result *result)
{
    *result = (fl_run_result){.K = head->plan.K, .R = head->plan.R, .M = head->plan.M};
    fl_tally_result(&head->tally, result);
    result->wall_seconds = (double)(fl_now_us() - head->files.start_us) * 1e-6;
    snprintf(result->run_dir, sizeof result->run_dir, "%s", head->options->run_dir);
}

/* As whoever has started the run would write it. */
static const char *from_here(const char *path)
{
    char here[PATH_MAX];
    size_t n = getcwd(here, sizeof here) == NULL ? 0 : strlen(here);
    bool below = n > 0 && strncmp(path, here, n) == 0 && path[n] == '/';
    return below ? path + n + 1 : path;
}

/* At the end of the output, and in the run directory for whoever comes later, from anywhere. */
static void summarize(const fl_head *head, const fl_run_result *result)
{
    fl_head_options at_the_end = *head->options;
    at_the_end.plan = &head->plan;
    at_the_end.run_dir = from_here(head->options->run_dir);
    fl_progress_summary(stdout, &at_the_end, result, head->status, head->ledger_text);
    int fd = openat(head->options->dir_fd, "summary.txt", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                    0644);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    at_the_end.run_dir = head->options->run_dir;
    if (file != NULL) {
        fl_progress_summary(file, &at_the_end, result, head->status, head->ledger_text);
        fclose(file);
    } else if (fd >= 0) {
        close(fd);
    }
}

/* As the job says; a step that the run does not have is not worth ending it. */
static void trace_as_asked(fl_head *head)
{
    int64_t first_step = head->options->job->trace.start;
    int64_t n_steps = head->options->job->trace.steps;
    if (n_steps > 0 && fl_trace_request(head, &first_step, n_steps) != FL_OK) {
        fl_log(FL_LOG_WARN, "no trace: %s", fl_errmsg());
    }
}

static fl_status run(fl_head *head, fl_run_result *result)
{
    fl_status status = open_all(head);
    if (status != FL_OK) {
        return status;
    }
    fl_story_started(head);
    fl_story_costs(head);
    fl_story_plan(head);
    fl_story_cache_opened(head);
    trace_as_asked(head);
    run_loop(head);
    fl_learn_end(head);
    conclude(head);
    fill_result(head, result);
    fl_story_over(head, result);
    if (head->status == FL_OK || head->status == FL_ESTOPPED) {
        summarize(head, result);
    }
    return head->status == FL_OK ? FL_OK : fl_fail(head->status, "%s", head->message);
}

fl_status fl_head_run(const fl_head_options *options, fl_run_result *result)
{
    fl_run_result own;
    fl_head *head = NULL;
    FL_TRY(fl_alloc(sizeof *head, (void **)&head));
    head->job = *options->job;
    head->own_options = *options;
    head->own_options.job = &head->job;
    head->options = &head->own_options;
    head->plan = *options->plan;
    head->n_workers = options->plan->n_workers;
    head->lost = head->spared.rank = -1;
    head->files.steps_fd = head->files.events_fd = -1;
    fl_signals_block(&head->signals);
    fl_status status = run(head, result != NULL ? result : &own);
    close_all(head);
    fl_free(head);
    return status;
}
