#include "device/machine/islands.h"

#include <stdio.h>
#include <string.h>

static bool is_linked(const fl_device_survey *s, fl_island_kind kind, int a, int b)
{
    return kind == FL_ISLAND_NVLINK ? s->nvlink[a][b] && s->nvlink[b][a]
           : kind == FL_ISLAND_NUMA
               ? s->device[a].numa >= 0 && s->device[a].numa == s->device[b].numa
           : kind == FL_ISLAND_SOCKET ? s->seat_socket[a] == s->seat_socket[b]
                                      : true;
}

int fl_islands_n_devices(const fl_device_survey *survey)
{
    return survey->n > 0 ? survey->n : survey->n_seats;
}

static bool fits(const fl_device_survey *s, const fl_islands *found, int device, int island)
{
    for (int other = 0; other < device; other++) {
        if (found->of[other] == island && !is_linked(s, found->kind, other, device)) {
            return false;
        }
    }
    return true;
}

static void group_by(const fl_device_survey *s, fl_island_kind kind, fl_islands *out)
{
    *out = (fl_islands){.kind = kind};
    for (int device = 0; device < fl_islands_n_devices(s); device++) {
        int island = 0;
        while (island < out->n && !fits(s, out, device, island)) {
            island++;
        }
        out->of[device] = island;
        out->n = island == out->n ? island + 1 : out->n;
    }
}

/* Islands of one device each are no help. */
static bool is_useful(const fl_device_survey *s, const fl_islands *found)
{
    return found->n > 1 && found->n < fl_islands_n_devices(s);
}

static bool all_known(const fl_device_survey *s)
{
    for (int i = 0; i < s->n; i++) {
        if (s->device[i].numa < 0) {
            return false;
        }
    }
    return true;
}

static void find_sockets(const fl_device_survey *survey, fl_islands *out)
{
    group_by(survey, FL_ISLAND_SOCKET, out);
    if (!is_useful(survey, out)) {
        group_by(survey, FL_ISLAND_ALL, out);
    }
}

void fl_islands_find(const fl_device_survey *survey, fl_islands *out)
{
    if (survey->n == 0) {
        find_sockets(survey, out);
        return;
    }
    group_by(survey, FL_ISLAND_NVLINK, out);
    if (is_useful(survey, out)) {
        return;
    }
    bool all_linked = out->n == 1;
    group_by(survey, FL_ISLAND_NUMA, out);
    if (all_linked || !all_known(survey) || !is_useful(survey, out)) {
        group_by(survey, FL_ISLAND_ALL, out);
    }
}

static void find_pair(const fl_islands *islands, int limit, bool near, int *a, int *b)
{
    for (*a = 0; *a < limit; ++*a) {
        for (*b = *a + 1; *b < limit; ++*b) {
            if ((islands->of[*a] == islands->of[*b]) == near) {
                return;
            }
        }
    }
    *a = *b = -1;
}

void fl_islands_near_pair(const fl_islands *islands, int limit, int *a, int *b)
{
    find_pair(islands, limit, true, a, b);
}

void fl_islands_far_pair(const fl_islands *islands, int limit, int *a, int *b)
{
    find_pair(islands, limit, false, a, b);
}

static const char *kind_text(fl_island_kind kind)
{
    return kind == FL_ISLAND_NVLINK   ? "NVLink within"
           : kind == FL_ISLAND_SOCKET ? "a socket each:"
                                      : "a NUMA node each:";
}

const char *fl_islands_text(const fl_islands *islands, int n_devices, char text[FL_ISLANDS_TEXT])
{
    size_t n = 0;
    text[0] = '\0';
    if (islands->n <= 1) {
        return text;
    }
    n = (size_t)snprintf(text, FL_ISLANDS_TEXT, "%s", kind_text(islands->kind));
    for (int island = 0; island < islands->n; island++) {
        const char *between = island == 0 ? " " : " | ";
        for (int d = 0; d < n_devices && n < FL_ISLANDS_TEXT; d++) {
            if (islands->of[d] == island) {
                n += (size_t)snprintf(text + n, FL_ISLANDS_TEXT - n, "%s%d", between, d);
                between = ", ";
            }
        }
    }
    return text;
}
