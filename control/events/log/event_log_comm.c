/* The event of the transports and communicators of a generation. */
#include "control/events/log/event_log.h"

#include <string.h>

static void put_lines(fl_json *j, const char *text)
{
    char line[FL_GROUP_PAIRS_MAX + 1];
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        memcpy(line, text, n);
        line[n] = '\0';
        fl_json_text(j, NULL, line);
        text += n + (text[n] == '\n');
    }
}

void fl_fields_comm(fl_json *j, const fl_comm_report *report)
{
    const fl_group_comm *c = &report->comm;
    fl_json_integer(j, "pairs", c->n_pairs);
    fl_json_integer(j, "nccl_pairs", c->n_device_pairs);
    fl_json_text(j, "comm", fl_comm_way_text(c->way));
    fl_json_rounded(j, "comm_ms", (double)c->us * 1e-3, 3);
    if (c->registration != FL_REGISTERED_NONE) {
        fl_json_text(j, "registration", fl_comm_registration_text(c->registration));
        fl_json_integer(j, "registered", c->n_registered);
        fl_json_integer(j, "registered_bytes", c->registered_bytes);
        fl_json_rounded(j, "register_ms", (double)c->register_us * 1e-3, 3);
    }
    fl_json_array(j, "host_pairs");
    put_lines(j, c->host_pairs);
    fl_json_close(j, ']');
}

void fl_event_log_comm(fl_event_log *log, const fl_comm_report *report)
{
    fl_json *j = fl_event_log_begin(log, "transport.chosen");
    fl_json_integer(j, "of_generation", report->generation);
    fl_fields_comm(j, report);
    fl_event_log_end(log);
}
