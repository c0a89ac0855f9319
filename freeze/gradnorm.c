/* F' = min(F + alpha (L - F), argmin over l of |g_l|), l the active blocks F + 1 .. L.
 *
 * The block with the smallest gradient norm has converged most; everything below it is assumed to
 * have come to rest before it, and alpha bounds what freezes at once.
 * Source: PipeTransformer, arXiv 2102.03161, equation 1. Its range of l begins at F, of which the
 * norm is 0 once it is frozen, so that it would always be the smallest: ours begins at F + 1. */
#include "freeze/rule.h"

#include <math.h>

/* alpha times a whole number may be a whole number, and come out a little less. */
static const double ROUNDING = 1e-9;

int fl__freeze_gradnorm(const fl_freeze_input *in, char why[FL_FREEZE_WHY_MAX])
{
    int L = in->L, F = in->F;
    double alpha = in->job->freeze.alpha;
    if (F == L) {
        fl__freeze_say(why, "all %d blocks are frozen", L);
        return F;
    }
    if (!fl__freeze_has_norms(in, in->norm, "interval just ended", why)) {
        return F;
    }
    int smallest = F + 1;
    for (int block = F + 2; block <= L; block++) {
        if (in->norm[block - 1] < in->norm[smallest - 1]) {
            smallest = block;
        }
    }
    int most = F + (int)floor(alpha * (L - F) + ROUNDING);
    fl__freeze_say(why, "block %d has the smallest norm %.3g of blocks %d..%d", smallest,
                   in->norm[smallest - 1], F + 1, L);
    if (smallest <= most) {
        return smallest;
    }
    fl__freeze_say(why, "; alpha %.3g of %d active blocks allows %d more", alpha, L - F, most - F);
    return most;
}
