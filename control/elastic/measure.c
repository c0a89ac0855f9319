/* The speed of the running plan, compared with its prediction. */
#include "control/elastic/elastic.h"
#include "control/elastic/elastic_events.h"

enum { MEASURED_STEPS = 20, WARM_UP_STEPS = 2, RECENT_STEPS = 100 };

/* ---- steps ---- */

/* Mean of the window's steps from .. to - 1. */
static double mean_ms(const fl_run_stats *stats, int64_t from, int64_t to)
{
    double sum = 0.0;
    int64_t oldest = stats->n_window - FL_RUN_STATS_WINDOW;
    from = from > oldest ? from : oldest;
    from = from > 0 ? from : 0;
    for (int64_t i = from; i < to; i++) {
        sum += stats->window_ms[i % FL_RUN_STATS_WINDOW];
    }
    return to > from ? sum / (double)(to - from) : 0.0;
}

/* The newest steps of this generation, without its warm-up if there are other steps. */
static int64_t recent_from(const fl_elastic *elastic)
{
    int64_t first = elastic->transition.first_step, steps = elastic->run->stats->steps;
    int64_t from = steps > first + WARM_UP_STEPS ? first + WARM_UP_STEPS : first;
    return from > steps - RECENT_STEPS ? from : steps - RECENT_STEPS;
}

double fl_measure_step_ms(const fl_elastic *elastic)
{
    return mean_ms(elastic->run->stats, recent_from(elastic), elastic->run->stats->steps);
}

/* The predicted mean time of a step of `plan` over the steps from .. to - 1. */
static double model_ms(const fl_elastic *elastic, const fl_plan *plan, int64_t from, int64_t to)
{
    fl_plan_input input = *elastic->run->options->plan_input;
    fl_cache_warmup w = elastic->decide.warming;
    int64_t per_epoch = elastic->run->stats->steps_per_epoch;
    fl_cache_warmup_move(&w, plan->F, elastic->run->stats->steps, per_epoch);
    input.F = plan->F;
    input.missing = fl_cache_warmup_share(&w, per_epoch, from, to);
    input.kept = w.kept;
    return fl_plan_predict(&input, plan, NULL) * 1e-3;
}

double fl_measure_ratio(const fl_elastic *elastic)
{
    double measured = fl_measure_step_ms(elastic);
    double predicted =
        model_ms(elastic, &elastic->plan, recent_from(elastic), elastic->run->stats->steps);
    return measured > 0.0 && predicted > 0.0 ? measured / predicted : 1.0;
}

double fl_measure_predict_ms(const fl_elastic *elastic, const fl_plan *plan)
{
    if (elastic->run->options->plan_input == NULL) {
        return 0.0;
    }
    int64_t now = elastic->run->stats->steps;
    return model_ms(elastic, plan, now, now + WARM_UP_STEPS + MEASURED_STEPS) *
           fl_measure_ratio(elastic);
}

void fl_measure_watch(fl_elastic *elastic, bool ending)
{
    int64_t from = elastic->transition.first_step + WARM_UP_STEPS, to = from + MEASURED_STEPS;
    int64_t steps = elastic->run->stats->steps;
    if (!elastic->measure.pending || (steps < to && !ending)) {
        return;
    }
    elastic->measure.pending = false;
    to = steps < to ? steps : to;
    if (to > from) {
        fl_event_log_measured(elastic, mean_ms(elastic->run->stats, from, to), to - from);
    }
}

void fl_measure_switching(fl_elastic *elastic)
{
    elastic->measure.pending = !fl_tune_is_trial(elastic);
}
