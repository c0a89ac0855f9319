/* A page of HTML as it grows: whatever comes from outside is escaped, and cannot be put in else. */
#ifndef FL_LAUNCHER_REPORT_DRAW_HTML_H
#define FL_LAUNCHER_REPORT_DRAW_HTML_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed is empty. When memory runs out the page is marked broken and nothing more is added. */
typedef struct fl_html {
    char *text;
    size_t n, capacity;
    bool broken;
} fl_html;

void fl_html_fini(fl_html *html);

/* The format is markup and goes in as it is; each %s is text, and goes in escaped. Also known: %d,
 * %ld, %lld, %%, and %.Nf with a digit or * for N, of a finite number (else "-"). */
void fl_html_add(fl_html *html, const char *format, ...) FL_PRINTF(2, 3);

/* text [n_bytes], escaped: markup becomes what it looks like; bytes that are no UTF-8, control
 * characters and those that turn the direction of writing become U+FFFD. */
void fl_html_text(fl_html *html, const char *text, size_t n_bytes);

/* "1,234,567"; "-" for what is not finite or beyond 1e15. Returns text. */
enum { FL_NUMBER_BYTES = 40 };
const char *fl_html_number(double value, int digits, char text[FL_NUMBER_BYTES]);

/* "2:03 h", "12:23 min", "8.25 s", "3.1 ms". Returns text. */
const char *fl_html_duration(double seconds, char text[FL_NUMBER_BYTES]);

#endif
