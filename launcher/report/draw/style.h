/* How the page looks. */
#ifndef FL_LAUNCHER_REPORT_DRAW_STYLE_H
#define FL_LAUNCHER_REPORT_DRAW_STYLE_H

#include "launcher/report/draw/html.h"

/* The style sheet, as the inside of <style>. */
void fl_page_style(fl_html *html);

#endif
