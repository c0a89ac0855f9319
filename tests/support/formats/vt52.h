/* What a program draws on a VT52, a terminal of a dozen orders that ncurses knows: enough to see
 * the screen as its user does. */
#ifndef FL_TESTS_SUPPORT_FORMATS_VT52_H
#define FL_TESTS_SUPPORT_FORMATS_VT52_H

#include <stddef.h>

enum { VT52_SIDE_MAX = 224 /* an order holds no larger number */ };

typedef struct vt52 {
    int width, height, x, y;
    unsigned char order[4]; /* as far as it has come */
    int n_order;
    char cell[VT52_SIDE_MAX][VT52_SIDE_MAX + 1]; /* by line, each ended by 0 */
} vt52;

/* A blank screen of this size; the program redraws all of it when it hears of the size. */
void vt52_reset(vt52 *screen, int width, int height);

void vt52_take(vt52 *screen, const char *bytes, size_t n);

/* The line (from 0) in which the text stands, -1: none. */
int vt52_find(const vt52 *screen, const char *text);

/* All lines on standard error, for a test that fails. */
void vt52_print(const vt52 *screen);

#endif
