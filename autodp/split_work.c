#include "autodp/split_work.h"

#include <stdbool.h>
#include <stddef.h>

static void share_counts(int64_t n, int n_shares, int64_t *first)
{
    int64_t each = n / n_shares, longer = n % n_shares;
    for (int i = 0; i <= n_shares; i++) {
        first[i] = i * each + (i < longer ? i : longer);
    }
}

static int64_t weight(const int32_t *work, int64_t i)
{
    return work[i] > 0 ? work[i] : 0;
}

/* Whether shares of at most `limit` work can hold everything; limit >= the largest work. */
static bool can_share(int64_t n, const int32_t *work, int n_shares, int64_t limit)
{
    int64_t sum = 0;
    int shares = 1;
    for (int64_t i = 0; i < n; i++) {
        sum += weight(work, i);
        if (sum > limit) {
            sum = weight(work, i);
            shares++;
        }
    }
    return shares <= n_shares;
}

/* The smallest work that the largest share can have. It lies between the even share (or the largest
 * sample) and the two together, so the number of passes is at most the bits of one sample's work.
 */
static int64_t smallest_limit(int64_t n, const int32_t *work, int n_shares, int64_t total,
                              int64_t largest)
{
    int64_t even = total / n_shares + (total % n_shares != 0);
    int64_t low = even > largest ? even : largest, high = even + largest;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (can_share(n, work, n_shares, middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* first[i] becomes the earliest start of share i from which shares i .. n_shares - 1, each within
 * `limit`, reach the end. */
static void earliest_starts(int64_t n, const int32_t *work, int n_shares, int64_t limit,
                            int64_t *first)
{
    int64_t at = n;
    first[n_shares] = n;
    for (int i = n_shares - 1; i >= 0; i--) {
        for (int64_t sum = 0; at > 0 && sum + weight(work, at - 1) <= limit; at--) {
            sum += weight(work, at - 1);
        }
        first[i] = at;
    }
}

/* Move each start as near to its even place as `limit` allows: as far as the share before it may
 * reach, and not before the earliest start. */
static void spread_starts(int64_t n, const int32_t *work, int n_shares, int64_t limit,
                          int64_t total, int64_t *first)
{
    int64_t at = 0, before = 0; /* before: the work of the samples below `at` */
    for (int i = 1; i < n_shares; i++) {
        int64_t place = total / n_shares * i + total % n_shares * i / n_shares;
        int64_t begin = before;
        while (at < n && before + weight(work, at) - begin <= limit) {
            int64_t w = weight(work, at);
            if (at >= first[i] && place - before <= before + w - place) {
                break;
            }
            before += w;
            at++;
        }
        first[i] = at;
    }
}

void fl_split_work(int64_t n, const int32_t *work, int n_shares, int64_t *first)
{
    int64_t total = 0, largest = 0;
    for (int64_t i = 0; work != NULL && i < n; i++) {
        total += weight(work, i);
        largest = weight(work, i) > largest ? weight(work, i) : largest;
    }
    if (total == 0) {
        share_counts(n, n_shares, first);
        return;
    }
    int64_t limit = smallest_limit(n, work, n_shares, total, largest);
    earliest_starts(n, work, n_shares, limit, first);
    spread_starts(n, work, n_shares, limit, total, first);
}
