#include "launcher/top/draw/top_hosts.h"

#include "device/text/size_text.h"

#include <math.h>
#include <string.h>

enum { GAP = 3 /* cells between two hosts */, LEFT_OUT = 96 };

/* ---- names ---- */

const char *fl_top_host_shorten(const char *name, int room, fl_top_cut cut, bool unicode,
                                char text[FL_TOP_HOST_TEXT])
{
    const char *mark = unicode ? "\xE2\x80\xA6" : "~";
    int n = (int)strlen(name);
    if (n > room && cut == FL_TOP_CUT_LABEL) {
        n = (int)strcspn(name, ".");
    }
    if (n <= room || room < 1) {
        snprintf(text, FL_TOP_HOST_TEXT, "%.*s", n, name);
        return text;
    }
    int begin = cut == FL_TOP_CUT_END ? room - 1 : (room - 1) / 2, end = room - 1 - begin;
    snprintf(text, FL_TOP_HOST_TEXT, "%.*s%s%.*s", begin, name, mark, end, name + n - end);
    return text;
}

static bool differ(const fl_top_model *m, int room, fl_top_cut cut)
{
    char one[FL_TOP_HOST_TEXT], other[FL_TOP_HOST_TEXT];
    for (int i = 0; i < m->n_hosts; i++) {
        fl_top_host_shorten(m->host[i].name, room, cut, false, one);
        for (int j = 0; j < i; j++) {
            if (strcmp(one, fl_top_host_shorten(m->host[j].name, room, cut, false, other)) == 0) {
                return false;
            }
        }
    }
    return true;
}

fl_top_cut fl_top_hosts_cut(const fl_top_model *m, int room)
{
    bool all_fit = true;
    for (int i = 0; i < m->n_hosts; i++) {
        all_fit = all_fit && (int)strlen(m->host[i].name) <= room;
    }
    int cut = 0;
    while (!all_fit && cut < FL_TOP_CUTS && !differ(m, room, (fl_top_cut)cut)) {
        cut++;
    }
    return cut == FL_TOP_CUTS ? FL_TOP_CUT_LABEL : (fl_top_cut)cut;
}

/* ---- the line ---- */

static bool is_joined(const fl_top_host *host)
{
    return strcmp(host->state, "joined") == 0;
}

/* "node-06 x2", "node-07 x1 lost". */
static const char *host_text(const fl_top_host *h, char text[FL_HOST_TEXT + FL_TOP_WORD_MAX + 16])
{
    bool joined = is_joined(h);
    snprintf(text, FL_HOST_TEXT + FL_TOP_WORD_MAX + 16, "%s x%d%s%s", h->name, h->n_workers,
             joined ? "" : " ", joined ? "" : h->state);
    return text;
}

/* Those that are not in the run come first. */
static void sort_hosts(const fl_top_model *m, int order[FL_MAX_WORKERS])
{
    int n = 0;
    for (int joined = 0; joined < 2; joined++) {
        for (int i = 0; i < m->n_hosts; i++) {
            if (is_joined(&m->host[i]) == (joined != 0)) {
                order[n++] = i;
            }
        }
    }
}

/* How many of these have the state of the first; 0: one before them has it, or it is joined. */
static int count_state(const fl_top_model *m, const int *order, int i, int n)
{
    int same = 0;
    for (int j = 0; j < n && !is_joined(&m->host[order[i]]); j++) {
        if (strcmp(m->host[order[j]].state, m->host[order[i]].state) == 0) {
            if (j < i) {
                return 0;
            }
            same++;
        }
    }
    return same;
}

/* "+2 (1 lost)" for the hosts that are left out; "" for none. */
static const char *left_out_text(const fl_top_model *m, const int *order, int n,
                                 char text[LEFT_OUT])
{
    text[0] = '\0';
    int used = n > 0 ? snprintf(text, LEFT_OUT, "+%d", n) : 0, states = 0;
    for (int i = 0; i < n && !is_joined(&m->host[order[i]]) && used < LEFT_OUT; i++) {
        int same = count_state(m, order, i, n);
        if (same > 0) {
            used += snprintf(text + used, LEFT_OUT - (size_t)used, "%s%d %s",
                             states++ == 0 ? " (" : ", ", same, m->host[order[i]].state);
        }
    }
    if (states > 0 && used < LEFT_OUT) {
        snprintf(text + used, LEFT_OUT - (size_t)used, ")");
    }
    return text;
}

/* The most of these that fit into `room` cells together with what is said of the others. */
static int count_fitting(const fl_top_model *m, const int *order, int n, int room)
{
    char text[FL_HOST_TEXT + FL_TOP_WORD_MAX + 16], others[LEFT_OUT];
    int used = 0, fitting = 0;
    for (int i = 0; i < n && used < room; i++) {
        used += (int)strlen(host_text(&m->host[order[i]], text)) + (i > 0 ? GAP : 0);
        int behind = (int)strlen(left_out_text(m, order + i + 1, n - i - 1, others));
        if (used + (behind > 0 ? GAP + behind : 0) <= room) {
            fitting = i + 1;
        }
    }
    return fitting;
}

void fl_top_hosts_line(fl_top_cells *c, const fl_top_model *m, int y)
{
    int order[FL_MAX_WORKERS] = {0};
    char text[FL_HOST_TEXT + FL_TOP_WORD_MAX + 16], others[LEFT_OUT], size[FL_SIZE_TEXT_MAX];
    sort_hosts(m, order);
    int x = fl_top_text(c, 1, y, c->width, FL_TOP_DIM, "hosts") + 1;
    int n = count_fitting(m, order, m->n_hosts, c->width - x);
    for (int i = 0; i < n; i++) {
        x = GAP + fl_top_text(c, x, y, c->width - x,
                              is_joined(&m->host[order[i]]) ? FL_TOP_PLAIN : FL_TOP_WARN,
                              host_text(&m->host[order[i]], text));
    }
    if (n < m->n_hosts) {
        left_out_text(m, order + n, m->n_hosts - n, others);
        fl_top_text(c, x, y, c->width - x,
                    is_joined(&m->host[order[n]]) ? FL_TOP_PLAIN : FL_TOP_WARN, others);
        return;
    }
    if (!isnan(m->link_us) && !isnan(m->link_bytes_per_s)) {
        snprintf(text, sizeof text, "%.3g us, %s/s", m->link_us,
                 fl_size_text((double)m->link_bytes_per_s, size));
        if (x + (int)strlen("between them ") + (int)strlen(text) <= c->width) {
            x = fl_top_text(c, x, y, c->width - x, FL_TOP_DIM, "between them") + 1;
            fl_top_text(c, x, y, c->width - x, FL_TOP_PLAIN, text);
        }
    }
}
