#include "control/tally.h"

#include <math.h>

void fl_tally_init(fl_tally *tally, int64_t n_samples, int64_t batch, int64_t n_steps,
                   int64_t n_epochs, bool evaluates)
{
    *tally = (fl_tally){.n_steps = n_steps, .n_epochs = n_epochs, .evaluates = evaluates};
    tally->steps_per_epoch = batch > 0 ? (n_samples + batch - 1) / batch : 0;
    if (tally->steps_per_epoch > 0) { /* a limit on the steps may leave fewer epochs */
        int64_t begun = (n_steps + tally->steps_per_epoch - 1) / tally->steps_per_epoch;
        tally->n_epochs = begun < n_epochs ? begun : n_epochs;
    }
}

bool fl_tally_step(fl_tally *tally, const fl_step_report *report, int64_t at_us)
{
    if (tally->steps > 0 && report->step <= tally->last.step) {
        return false;
    }
    if (tally->steps == 0) {
        tally->first_us = at_us - (int64_t)(report->ms * 1000);
    }
    if (tally->now.steps == 0) {
        tally->now.epoch = report->epoch;
    }
    tally->last = *report;
    tally->last_us = at_us;
    tally->steps++;
    tally->samples += report->samples;
    tally->tokens += report->tokens;
    tally->step_ms += report->ms;
    tally->eval_ms += tally->pending_eval_ms;
    tally->pending_eval_ms = 0;
    tally->now.steps++;
    tally->now.samples += report->samples;
    tally->now.loss_sum += report->loss;
    tally->now.ms += report->ms;
    int64_t slot = tally->n_window++ % FL_TALLY_WINDOW;
    tally->window_ms[slot] = report->ms;
    tally->window_samples[slot] = report->samples;
    return true;
}

bool fl_tally_eval(fl_tally *tally, const fl_eval_report *report)
{
    if (tally->any_eval && report->epoch <= tally->last_eval.epoch) {
        return false;
    }
    tally->any_eval = true;
    tally->last_eval = *report;
    tally->pending_eval_ms += report->ms;
    tally->now.evaluated = true;
    tally->now.eval = *report;
    return true;
}

void fl_tally_idle(fl_tally *tally, double ms)
{
    tally->pending_eval_ms += ms;
}

bool fl_tally_epoch_over(fl_tally *tally, bool no_more)
{
    fl_epoch_tally *now = &tally->now;
    bool all_steps = now->steps > 0 && now->steps >= tally->steps_per_epoch;
    bool last_step = now->steps > 0 && tally->steps >= tally->n_steps;
    bool over = (all_steps || last_step || no_more) && now->steps > 0 &&
                (now->evaluated || (!tally->evaluates && !no_more));
    if (!over) {
        return false;
    }
    tally->epochs += all_steps;
    tally->past = *now;
    tally->now = (fl_epoch_tally){.epoch = now->epoch + 1};
    return true;
}

double fl_tally_rate(const fl_tally *tally, double span_ms, double *ms_per_step)
{
    double ms = 0;
    int64_t samples = 0, steps = 0;
    int64_t n = tally->n_window < FL_TALLY_WINDOW ? tally->n_window : FL_TALLY_WINDOW;
    for (int64_t i = 1; i <= n && ms < span_ms; i++) {
        int64_t slot = (tally->n_window - i) % FL_TALLY_WINDOW;
        ms += tally->window_ms[slot];
        samples += tally->window_samples[slot];
        steps++;
    }
    *ms_per_step = steps > 0 ? ms / (double)steps : 0;
    return ms > 0 ? (double)samples / ms * 1000 : 0;
}

double fl_tally_left_s(const fl_tally *tally)
{
    double ms_per_step;
    (void)fl_tally_rate(tally, 10000, &ms_per_step);
    if (tally->steps == 0 || tally->n_steps < tally->steps) {
        return NAN;
    }
    double left_ms = (double)(tally->n_steps - tally->steps) * ms_per_step;
    if (tally->any_eval) { /* each epoch ends with one, so does the run */
        left_ms += (double)(tally->n_epochs - tally->last_eval.epoch - 1) * tally->last_eval.ms;
    }
    return left_ms / 1000;
}

void fl_tally_result(const fl_tally *tally, fl_run_result *result)
{
    const fl_epoch_tally *last = tally->now.steps > 0 ? &tally->now : &tally->past;
    double seconds = (double)(tally->last_us - tally->first_us) * 1e-6 - tally->eval_ms * 1e-3;
    result->steps = tally->steps;
    bool ended = tally->now.steps > 0 && tally->now.steps >= tally->steps_per_epoch;
    result->epochs = tally->epochs + ended;
    result->train_loss = last->steps > 0 ? last->loss_sum / (double)last->steps : NAN;
    result->test_loss = tally->any_eval ? tally->last_eval.loss : NAN;
    result->test_accuracy = tally->any_eval ? tally->last_eval.accuracy : NAN;
    result->seconds = seconds > 0 ? seconds : 0;
    result->samples_per_s = seconds > 0 ? (double)tally->samples / seconds : 0;
}
