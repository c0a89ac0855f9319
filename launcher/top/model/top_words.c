#include "launcher/top/model/top_words.h"

#include "device/text/plural.h"
#include "device/text/size_text.h"
#include "launcher/cli/ctl/ctl_show.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* {field} stands for a field of the event; {field+} counts from 1, {field%} is a share of 1,
 * {field size} are bytes, {field #noun} counts nouns. The first template counts whose fields are
 * all there. */
static const struct {
    const char *event, *words;
} templates[] = {
    {"run.started", "started: {steps #step}, batch {batch}, seed {seed}"},
    {"run.running", "all workers are ready: training begins"},
    {"costs", "costs of layers: {from}, of {measured}"},
    {"costs.learned", "costs of layers corrected by live steps"},
    {"plan.chosen", "plan K={k} R={r} M={m}: {step_ms} ms a step predicted"},
    {"plan.considered", "F={f} weighed, choice: {choice} ({why})"},
    {"hosts.measured",
     "links between hosts measured: {latency_us} us, {bytes_per_s size}/s, all-reduce "
     "{reduce_bytes_per_s size}/s"},
    {"worker.ready", "worker {rank} is ready, {memory_peak_bytes size} at most"},
    {"worker.left", "worker {rank} has left after step {steps}"},
    {"run.recovered", "the run goes on from step {step} (K={k} R={r} M={m}): {why}"},
    {"run.returning", "the run goes back from step {steps} to step {step} (a {to}): {why}"},
    {"worker.lost", "worker {rank} of host {host} lost ({how}): {message}"},
    {"worker.lost", "worker {rank} lost ({how}): {message}"},
    {"worker.started", "worker {rank} is started"},
    {"worker.restarted", "worker {rank} is started again ({why})"},
    {"worker.joined", "worker {rank} has joined, as standby"},
    {"agent.lost", "{message}"},
    {"host.joined", "host {host} has joined, {workers #worker} from worker {first_worker} on"},
    {"host.draining", "host {host} is to leave ({why})"},
    {"host.drained", "host {host} has left the run, after {seconds} s"},
    {"host.lost", "host {host} is lost: {why}"},
    {"host.refused", "host {host} cannot take part: {why}"},
    {"worker.slow", "worker {rank} computes slowly: {own_ms} ms, {expected_ms} expected"},
    {"worker.recovered", "worker {rank} computes at its usual speed again"},
    {"evaluation", "evaluated after step {step+}: validation loss {validation_loss}, accuracy "
                   "{validation_accuracy%}"},
    {"evaluation", "evaluated after step {step+}: validation loss {validation_loss}"},
    {"evaluation", "evaluated after step {step+}: loss {test_loss}, accuracy {test_accuracy%}"},
    {"evaluation", "evaluated after step {step+}: loss {test_loss}"},
    {"step.nonfinite", "step {step+} is not finite ({action}): {message}"},
    {"epoch.finished", "epoch {epoch+} finished: loss {train_loss}, accuracy {test_accuracy%}"},
    {"epoch.finished", "epoch {epoch+} finished: loss {train_loss}"},
    {"freeze.decided", "freeze: F={f} becomes {f_next} ({why})"},
    {"freeze.decided", "freeze: F={f} ({why})"},
    {"cache.opened", "no cache: {why_not}"},
    {"cache.opened", "cache: {memory_bytes size} of memory, {disk_bytes size} of disk"},
    {"cache.decided",
     "cache {state}: a sample takes {read_us} us to read, {compute_us} to compute"},
    {"cache.tiers",
     "cache, worker {rank}: {device_bytes size} on the GPU, {pinned_bytes size} pinned"},
    {"cache.used", "cache {state}, epoch {epoch+}, worker {rank}: {hits #hit}, {misses #miss}"},
    {"transport.chosen",
     "NCCL between {nccl_pairs} of {pairs #pair} of workers ({comm}, {comm_ms} ms)"},
    {"graphs", "no graphs, worker {rank}: {reason}"},
    {"graphs", "graphs, worker {rank}: {captures #capture}, {launches #launch}, {calls #call}"},
    {"tune.tried", "tried M={m}: {step_ms} ms a step"},
    {"tune.done", "micro-batches: {why}"},
    {"transition.prepare", "plan change: K={k} R={r} M={m} is prepared ({why})"},
    {"transition.done", "plan change done: K={k} R={r} M={m}, {stall_ms} ms without training"},
    {"transition.cancelled", "plan change cancelled: {why}"},
    {"transition.measured",
     "a step takes {measured_step_ms} ms, {before_step_ms} before the change"},
    {"run.stalled", "no step for {seconds} s: {waits}"},
    {"run.stopping", "stopping ({why})"},
    {"opening.ended", "the workers were not connected yet: the run does not wait for them"},
    {"run.paused", "paused at step {step}"},
    {"run.continued", "continued at step {step}"},
    {"checkpoint.written", "checkpoint after {step #step}"},
    {"checkpoint.failed", "no checkpoint was written: {why}"},
    {"run.resumed", "gone back to {checkpoint}, {step #step} done: {why}"},
    {"run.resumed", "resumed from the checkpoint after {step #step} ({ended} before)"},
    {"run.returned", "goes on from step {step}, after {without_training_ms} ms without training"},
    {"run.ending", "ends with step {last_step}"},
    {"job.changed", "{field} is {value} from step {step} on"},
    {"snapshot.taken",
     "snapshot in memory after {step #step}: {bytes size}, {copy_ms} ms without training"},
    {"model.saved", "model saved: {path}, {bytes size}"},
    {"trace.written", "trace written: {file}"},
    {"trace.failed", "no trace: {message}"},
    {"record.incomplete", "record incomplete: {missing}"},
    {"run.finished", "finished: {steps #step}, loss {train_loss}, accuracy {test_accuracy%}"},
    {"run.finished", "finished: {steps #step}, loss {train_loss}"},
    {"run.stopped", "stopped after {steps #step}"},
    {"run.failed", "failed: {message}"},
};
enum { N_TEMPLATES = sizeof templates / sizeof *templates, FIELD_BYTES = 32 };

/* One placeholder, without its braces; false if the event lacks the field. */
static bool put_field(const json_t *event, const char *name, size_t length, FILE *out)
{
    char key[FIELD_BYTES], count[FL_COUNT_BYTES], size[FL_SIZE_TEXT_MAX];
    snprintf(key, sizeof key, "%.*s", (int)length, name);
    char *bytes = strstr(key, " size"), *noun = strchr(key, '#');
    char last = key[length - 1];
    key[strcspn(key, "+% ")] = 0;
    const json_t *value = json_object_get(event, key);
    if (value == NULL || json_is_null(value)) {
        return false;
    }
    if (json_is_string(value)) {
        fputs(json_string_value(value), out);
    } else if (bytes != NULL) {
        fputs(fl_size_text(json_number_value(value), size), out);
    } else if (noun != NULL && json_is_integer(value)) {
        fputs(fl_count(json_integer_value(value), noun + 1, count), out);
    } else if (last == '%') {
        fprintf(out, "%.2f %%", 100.0 * json_number_value(value));
    } else if (json_is_integer(value)) {
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value) + (last == '+'));
    } else {
        fprintf(out, "%.4g", json_number_value(value));
    }
    return true;
}

static bool put_words(const json_t *event, const char *words, FILE *out)
{
    bool whole = true;
    for (const char *at = words; *at != 0 && whole; at++) {
        const char *close = *at == '{' ? strchr(at, '}') : NULL;
        if (close == NULL) {
            fputc(*at, out);
        } else {
            whole = put_field(event, at + 1, (size_t)(close - at - 1), out);
            at = close;
        }
    }
    return whole;
}

/* The event's words, or its fields as `frostline ctl watch` shows them; NULL without memory. */
static char *make_words(const json_t *event, const char *name)
{
    char *text = NULL;
    size_t n = 0;
    for (int i = 0; i <= N_TEMPLATES; i++) {
        bool last = i == N_TEMPLATES;
        if (!last && strcmp(templates[i].event, name) != 0) {
            continue;
        }
        FILE *out = open_memstream(&text, &n);
        if (out == NULL) {
            return NULL;
        }
        if (!last) {
            fprintf(out, "%7.1f s  ", json_number_value(json_object_get(event, "time")));
        } else {
            fl_ctl_show_event(event, out);
        }
        bool whole = last || put_words(event, templates[i].words, out);
        if (fclose(out) == 0 && whole) {
            return text;
        }
        free(text);
        text = NULL;
    }
    return NULL;
}

bool fl_top_words_have(const char *name)
{
    for (int i = 0; i < N_TEMPLATES; i++) {
        if (strcmp(templates[i].event, name) == 0) {
            return true;
        }
    }
    return false;
}

const char *fl_top_words(const json_t *event, char *text, size_t size_bytes)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    char *words = make_words(event, name == NULL ? "" : name);
    snprintf(text, size_bytes, "%.*s", words == NULL ? 0 : (int)strcspn(words, "\n"),
             words == NULL ? "" : words);
    for (char *c = text; *c != 0; c++) { /* what would steer the terminal */
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    }
    free(words);
    return text;
}
