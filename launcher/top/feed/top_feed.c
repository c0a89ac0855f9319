#include "launcher/top/feed/top_feed.h"

#include "control/socket/ctl_request.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "launcher/run/runs/run_hold.h"
#include "launcher/run/runs/runs.h"
#include "launcher/top/feed/top_tail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ASK_US = 500000,      /* between two requests for the status */
    AGAIN_US = 5000000,   /* the limit for a reply, after which the request is repeated */
    SILENT_US = 2000000,  /* the time without a reply after which the screen reports silence */
    NOTE_US = 10000000,   /* the time for which a note is shown */
    LINES_A_POLL = 20000, /* of a file; a limit, so that the screen stays responsive */
    EVENTS_A_POLL = 1000,
};

struct fl_top_feed {
    const fl_ctl_place *place;
    fl_top_model *model;
    fl_ctl_client_link *requests, *events; /* events: of a far run only */
    fl_top_tail event_lines, step_lines;
    int64_t sequence; /* of the last event of a far run; 0: none yet */
    int64_t serial;   /* of requests */
    int64_t asked_us, answered_us, looked_us;
    bool waits;                 /* for a status */
    char sent[FL_TOP_ARGS_MAX]; /* the command under way, for people */
    char note[FL_TOP_NOTE_MAX], silence[FL_TOP_NOTE_MAX];
    bool bad_note, goes_back;
    int64_t note_us;
};

static void open_file(fl_top_tail *tail, const char *dir, const char *name)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    fl_top_tail_open(tail, path);
}

static fl_status open_all(fl_top_feed *f)
{
    FL_TRY(fl_ctl_place_open(f->place, false, &f->requests));
    if (f->place->far) {
        return fl_ctl_place_open(f->place, true, &f->events);
    }
    open_file(&f->event_lines, f->place->path, "events.jsonl");
    open_file(&f->step_lines, f->place->path, "steps.jsonl");
    f->model->every_step = true;
    return FL_OK;
}

fl_status fl_top_feed_open(const fl_ctl_place *place, fl_top_model *model, fl_top_feed **out)
{
    fl_top_feed *f = NULL;
    FL_TRY(fl_alloc(sizeof *f, (void **)&f));
    f->place = place;
    f->model = model;
    f->answered_us = f->looked_us = fl_now_us();
    fl_status status = open_all(f);
    if (status != FL_OK) {
        fl_top_feed_close(&f);
        return status;
    }
    *out = f;
    return FL_OK;
}

void fl_top_feed_close(fl_top_feed **feed)
{
    fl_top_feed *f = *feed;
    if (f != NULL) {
        fl_ctl_client_close(&f->requests);
        fl_ctl_client_close(&f->events);
        fl_top_tail_close(&f->event_lines);
        fl_top_tail_close(&f->step_lines);
        fl_free(f);
        *feed = NULL;
    }
}

/* ---- requests ---- */

static bool send_request(fl_top_feed *f, const char *kind, const char *command, const char *args)
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"v\": %d, \"id\": \"%s-%d-%" PRId64 "\", \"cmd\": \"%s\", \"args\": %s}",
             FL_CTL_VERSION, kind, (int)getpid(), ++f->serial, command, args);
    return fl_ctl_client_send(f->requests, text) == FL_OK;
}

static void ask_status(fl_top_feed *f, int64_t now_us)
{
    int64_t waited_us = now_us - f->asked_us;
    if (waited_us >= (f->waits ? AGAIN_US : ASK_US) && send_request(f, "status", "status", "{}")) {
        f->asked_us = now_us;
        f->waits = true;
    }
}

static void put_note(fl_top_feed *f, bool bad)
{
    f->bad_note = bad;
    f->note_us = fl_now_us();
}

void fl_top_feed_send(fl_top_feed *f, const fl_top_request *request)
{
    snprintf(f->sent, sizeof f->sent, "%s", request->text);
    bool sent = send_request(f, "command", request->command, request->args);
    snprintf(f->note, sizeof f->note, sent ? "%s ..." : "%s: cannot be sent", f->sent);
    put_note(f, !sent);
}

/* ---- replies ---- */

static void note_result(fl_top_feed *f, const json_t *result)
{
    const json_t *changed = json_object_get(result, "changed");
    const json_t *step = json_object_get(result, "step");
    int n = snprintf(f->note, sizeof f->note, "%s: ", f->sent);
    size_t room = n < FL_TOP_NOTE_MAX ? (size_t)(FL_TOP_NOTE_MAX - n) : 0;
    if (json_is_false(changed)) {
        snprintf(f->note + n, room, "nothing had to change");
    } else {
        snprintf(f->note + n, room, "done, from step %" JSON_INTEGER_FORMAT " on",
                 json_integer_value(step));
    }
    put_note(f, false);
}

static void note_error(fl_top_feed *f, const json_t *error)
{
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    snprintf(f->note, sizeof f->note, "%s: %s: %s", f->sent, code == NULL ? "refused" : code,
             message == NULL ? "" : message);
    put_note(f, true);
}

static void take_reply(fl_top_feed *f, const char *text)
{
    json_t *reply = json_loads(text, 0, NULL);
    const char *id = json_string_value(json_object_get(reply, "id"));
    const json_t *result = json_object_get(reply, "result");
    f->answered_us = fl_now_us();
    if (id != NULL && strncmp(id, "command-", strlen("command-")) == 0) {
        if (json_is_true(json_object_get(reply, "ok"))) {
            note_result(f, result);
        } else {
            note_error(f, json_object_get(reply, "error"));
        }
        f->asked_us = 0; /* show at once what it has changed */
    } else {
        f->waits = false;
        (void)fl_top_model_status(f->model, result);
    }
    json_decref(reply);
}

static bool take_replies(fl_top_feed *f)
{
    const char *text;
    bool any = false;
    while (fl_ctl_client_receive(f->requests, 0, &text) == FL_OK) {
        take_reply(f, text);
        any = true;
    }
    return any;
}

/* ---- events and steps ---- */

static bool take_lines(fl_top_tail *tail, fl_top_model *model,
                       void (*take)(fl_top_model *, const char *), void (*forget)(fl_top_model *))
{
    const char *line;
    int n = 0;
    while (n < LINES_A_POLL && (line = fl_top_tail_next(tail)) != NULL) {
        if (tail->was_cut) {
            tail->was_cut = false;
            forget(model);
        }
        take(model, line);
        n++;
    }
    return n > 0;
}

static bool take_file_events(fl_top_feed *f)
{
    return take_lines(&f->event_lines, f->model, fl_top_model_event, fl_top_model_forget_events);
}

static bool take_file_steps(fl_top_feed *f)
{
    return take_lines(&f->step_lines, f->model, fl_top_model_step, fl_top_model_forget_steps);
}

static bool take_events(fl_top_feed *f)
{
    const char *line;
    int64_t sequence;
    int n = 0;
    while (f->events != NULL && n < EVENTS_A_POLL &&
           fl_ctl_client_event(f->events, 0, &line, &sequence) == FL_OK) {
        if (f->sequence > 0 && sequence > f->sequence + 1) {
            f->model->n_lost += sequence - f->sequence - 1;
        }
        f->sequence = sequence;
        fl_top_model_event(f->model, line);
        n++;
    }
    return n > 0;
}

/* ---- silence ---- */

fl_status fl_top_feed_check_recovering(const fl_top_feed *f)
{
    return fl_ctl_client_check_recovering(f->requests);
}

/* Once the run no longer answers, its directory tells how it ended. */
static void look_for_end(fl_top_feed *f)
{
    fl_run_entry entry;
    if (!f->place->far && !fl_run_is_live(f->place->path)) {
        bool known = fl_run_look(f->place->path, &entry) == FL_OK;
        if (known && fl_run_state_lives(entry.state)) {
            return;
        }
        while (take_file_events(f) || take_file_steps(f)) {
        }
        fl_top_model_end(f->model, known ? fl_run_state_text(entry.state) : "ended");
    }
}

/* True when it has become another. */
static bool tell_silence(fl_top_feed *f, int64_t now_us)
{
    char before[FL_TOP_NOTE_MAX];
    int64_t silent_us = now_us - f->answered_us;
    memcpy(before, f->silence, sizeof before);
    f->silence[0] = 0;
    if (silent_us >= SILENT_US && now_us - f->looked_us >= ASK_US) {
        look_for_end(f);
        f->goes_back = !f->model->over && fl_top_feed_check_recovering(f) != FL_OK;
        f->looked_us = now_us;
    }
    if (silent_us >= SILENT_US && !f->model->over) {
        snprintf(f->silence, sizeof f->silence, "no answer for %" PRId64 " s%s",
                 silent_us / 1000000, f->goes_back ? ": the run goes back after a loss" : "");
    }
    if (f->note[0] != 0 && now_us - f->note_us > NOTE_US) {
        f->note[0] = 0;
        return true;
    }
    return strcmp(before, f->silence) != 0 || f->model->over;
}

bool fl_top_feed_poll(fl_top_feed *f)
{
    int64_t now_us = fl_now_us();
    if (f->model->over) {
        return false;
    }
    ask_status(f, now_us);
    bool any = take_replies(f);
    any = take_events(f) || any;
    any = take_file_events(f) || any;
    any = take_file_steps(f) || any;
    return tell_silence(f, now_us) || any || f->model->over;
}

const char *fl_top_feed_note(const fl_top_feed *f, bool *bad)
{
    *bad = f->bad_note;
    return f->note;
}

void fl_top_feed_forget_note(fl_top_feed *f)
{
    f->note[0] = 0;
}

const char *fl_top_feed_silence(const fl_top_feed *f)
{
    return f->silence;
}
