#include "pipe/cost/time/cache_warmup.h"

void fl_cache_warmup_move(fl_cache_warmup *w, int F, int64_t step, int64_t steps_per_epoch)
{
    if (F == w->F) {
        return;
    }
    if (F < w->F) {
        w->kept = 0;
    } else if (step - w->since >= steps_per_epoch) {
        w->kept = w->F;
    }
    w->F = F;
    w->since = step;
}

double fl_cache_warmup_share(const fl_cache_warmup *w, int64_t steps_per_epoch, int64_t from,
                             int64_t to)
{
    int64_t end = w->since + steps_per_epoch;
    int64_t first = from > w->since ? from : w->since, last = to < end ? to : end;
    if (w->F == 0 || to <= from || last <= first) {
        return 0.0;
    }
    return (double)(last - first) / (double)(to - from);
}
