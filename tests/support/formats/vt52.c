#include "support/formats/vt52.h"

#include <stdio.h>
#include <string.h>

static void blank(vt52 *s, int y, int from, int to)
{
    if (from < to) {
        memset(s->cell[y] + from, ' ', (size_t)(to - from));
    }
}

void vt52_reset(vt52 *s, int width, int height)
{
    memset(s, 0, sizeof *s);
    s->width = width;
    s->height = height;
    for (int y = 0; y < height; y++) {
        blank(s, y, 0, width);
    }
}

static void scroll(vt52 *s, int by)
{
    int from = by > 0 ? 1 : 0, to = by > 0 ? 0 : 1, fresh = by > 0 ? s->height - 1 : 0;
    memmove(s->cell[to], s->cell[from], (size_t)(s->height - 1) * sizeof s->cell[0]);
    blank(s, fresh, 0, s->width);
}

static void down(vt52 *s)
{
    if (s->y + 1 < s->height) {
        s->y++;
    } else {
        scroll(s, 1);
    }
}

static void up(vt52 *s, int scrolls)
{
    if (s->y > 0) {
        s->y--;
    } else if (scrolls) {
        scroll(s, -1);
    }
}

static void clear_below(vt52 *s)
{
    blank(s, s->y, s->x, s->width);
    for (int y = s->y + 1; y < s->height; y++) {
        blank(s, y, 0, s->width);
    }
}

static void go(vt52 *s, int x, int y)
{
    s->x = x < 0 ? 0 : x >= s->width ? s->width - 1 : x;
    s->y = y < 0 ? 0 : y >= s->height ? s->height - 1 : y;
}

static void put(vt52 *s, char c)
{
    s->cell[s->y][s->x] = c;
    s->x += s->x + 1 < s->width; /* it does not wrap */
}

static void plain(vt52 *s, unsigned char c)
{
    switch (c) {
    case '\r':
        s->x = 0;
        break;
    case '\n':
        down(s);
        break;
    case '\b':
        go(s, s->x - 1, s->y);
        break;
    case '\t':
        go(s, (s->x / 8 + 1) * 8, s->y);
        break;
    default:
        if (c >= ' ') {
            put(s, (char)c);
        }
    }
}

static void obey(vt52 *s)
{
    switch (s->order[1]) {
    case 'A':
        up(s, 0);
        break;
    case 'B':
        go(s, s->x, s->y + 1);
        break;
    case 'C':
        go(s, s->x + 1, s->y);
        break;
    case 'D':
        go(s, s->x - 1, s->y);
        break;
    case 'H':
        go(s, 0, 0);
        break;
    case 'I':
        up(s, 1);
        break;
    case 'J':
        clear_below(s);
        break;
    case 'K':
        blank(s, s->y, s->x, s->width);
        break;
    case 'Y':
        go(s, s->order[3] - ' ', s->order[2] - ' ');
        break;
    default: /* character sets and keypads change nothing that is looked for */
        break;
    }
}

void vt52_take(vt52 *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (s->n_order == 0 && c != 27) {
            plain(s, c);
            continue;
        }
        s->order[s->n_order++] = c;
        if (s->n_order == 4 || (s->n_order == 2 && c != 'Y')) {
            obey(s);
            s->n_order = 0;
        }
    }
}

int vt52_find(const vt52 *s, const char *text)
{
    for (int y = 0; y < s->height; y++) {
        if (strstr(s->cell[y], text) != NULL) {
            return y;
        }
    }
    return -1;
}

void vt52_print(const vt52 *s)
{
    for (int y = 0; y < s->height; y++) {
        fprintf(stderr, "|%s|\n", s->cell[y]);
    }
}
