#include "launcher/report/page.h"

#include "launcher/report/draw/style.h"
#include "launcher/report/sections/sections.h"

static void open_page(fl_html *html, const fl_report *report)
{
    fl_html_add(html,
                "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                /* Nothing is loaded and nothing is run, whatever may have got in. */
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                "style-src 'unsafe-inline'\"/>\n<title>%s: %s</title>\n<style>\n",
                report->run.name, fl_run_state_text(report->run.state));
    fl_page_style(html);
    fl_html_add(html, "</style>\n</head>\n<body>\n<main>\n");
}

static void close_page(fl_html *html, const fl_report *report, const char *made)
{
    const char *version = fl_line_text(fl_report_first(report, "run.started"), "version");
    fl_html_add(html,
                "<footer>Made by frostline %s on %s from %s%s%s.</footer>\n</main>\n</body>\n"
                "</html>\n",
                FL_VERSION, made, report->run.path,
                version[0] == '\0' ? "" : ", a run of frostline ", version);
}

void fl_page_write(fl_html *html, const fl_report *report, const char *made)
{
    open_page(html, report);
    fl_page_head(html, report);
    fl_page_curves(html, report);
    fl_page_plans(html, report);
    fl_page_changes(html, report);
    fl_page_time(html, report);
    fl_page_cache(html, report);
    fl_page_transports(html, report);
    fl_page_graphs(html, report);
    fl_page_checkpoints(html, report);
    fl_page_hosts(html, report);
    fl_page_losses(html, report);
    fl_page_workers(html, report);
    fl_page_decisions(html, report);
    fl_page_raw(html, report);
    close_page(html, report, made);
}
