/* frostline top: a live view of a run.
 *
 *     top_feed.c ──> top_model.c ──> top_layout.c ──> cells ──> top_screen.c, or plain text
 *                                                               │ keys
 *     top_feed.c <── request <── top_ask.c <────────────────────┘ */
#include "launcher/top/command_top.h"

#include "launcher/cli/ctl/ctl_place.h"
#include "launcher/top/draw/top_layout.h"
#include "launcher/top/feed/top_feed.h"
#include "launcher/top/top_screen.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    KEY_MS = 100,
    ONCE_MS = 5000,
    LOOK_MS = 500,
    NAP_MS = 10,
    ONCE_WIDTH = 80,
    ONCE_HEIGHT = 24
};

static volatile sig_atomic_t told_to_end;

typedef struct top {
    fl_top_model *model;
    fl_top_feed *feed;
    fl_top_cells cells;
    fl_top_ask ask;
    fl_top_view view;
    int most_scroll;
    bool quits;
} top;

/* ---- one frame, as text ---- */

/* COLUMNS or LINES, as shells set it. */
static int side(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    long n = text == NULL ? 0 : strtol(text, NULL, 10);
    return n < 1 || n > FL_TOP_SIDE_MAX ? otherwise : (int)n;
}

static fl_status once(top *t, const char *where)
{
    int64_t deadline_us = fl_deadline_us(ONCE_MS), look_us = fl_deadline_us(LOOK_MS);
    while (!t->model->known && !t->model->over) {
        bool any = fl_top_feed_poll(t->feed);
        if (!t->model->known && fl_left_ms(look_us) == 0) {
            FL_TRY(fl_top_feed_check_recovering(t->feed));
            look_us = fl_deadline_us(LOOK_MS);
        }
        if (fl_left_ms(deadline_us) == 0) {
            return fl_fail(FL_EDEADLINE,
                           "%s: the run does not answer within %d s: its controller is stopped, or "
                           "the machine is very busy",
                           where, ONCE_MS / 1000);
        }
        if (!any) {
            nanosleep(&(struct timespec){0, NAP_MS * 1000000L}, NULL);
        }
    }
    while (fl_left_ms(deadline_us) > 0 && fl_top_feed_poll(t->feed)) { /* what its files hold */
    }
    FL_TRY(fl_top_cells_resize(&t->cells, side("COLUMNS", ONCE_WIDTH), side("LINES", ONCE_HEIGHT)));
    (void)fl_top_layout(&t->cells, t->model, &t->view);
    fl_top_cells_write(&t->cells, stdout);
    return FL_OK;
}

/* ---- at a terminal ---- */

static void note_signal(int number)
{
    told_to_end = number;
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = note_signal};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sigaction(numbers[i], &action, NULL);
    }
}

static fl_status show_screen(top *t)
{
    FL_TRY(fl_top_screen_fit(&t->cells));
    t->view.question = t->ask.question;
    t->view.note = fl_top_feed_note(t->feed, &t->view.bad_note);
    t->view.silence = fl_top_feed_silence(t->feed);
    t->most_scroll = fl_top_layout(&t->cells, t->model, &t->view);
    fl_top_screen_show(&t->cells);
    return FL_OK;
}

static void take_key(top *t, int key)
{
    int scroll = 0;
    fl_top_feed_forget_note(t->feed);
    if (t->view.help) {
        t->view.help = false;
        t->quits = key == 'q';
        return;
    }
    switch (fl_top_ask_key(&t->ask, t->model, key, &scroll)) {
    case FL_TOP_DEED_SEND:
        fl_top_feed_send(t->feed, &t->ask.request);
        break;
    case FL_TOP_DEED_HELP:
        t->view.help = true;
        break;
    case FL_TOP_DEED_QUIT:
        t->quits = true;
        break;
    case FL_TOP_DEED_SCROLL:
        t->view.scroll += scroll;
        break;
    case FL_TOP_DEED_NONE:
        break;
    }
    int most = t->most_scroll;
    t->view.scroll = t->view.scroll < 0 ? 0 : t->view.scroll > most ? most : t->view.scroll;
}

static fl_status watch_run(top *t)
{
    fl_status status = FL_OK;
    int width = 0, height = 0;
    while (status == FL_OK && !t->quits && told_to_end == 0) {
        bool changed = fl_top_feed_poll(t->feed);
        status = fl_top_screen_fit(&t->cells);
        changed = changed || width != t->cells.width || height != t->cells.height;
        width = t->cells.width;
        height = t->cells.height;
        if (status == FL_OK && changed) {
            status = show_screen(t);
        }
        int key = status == FL_OK ? fl_top_screen_key(KEY_MS) : 0;
        if (key != 0) {
            take_key(t, key);
            status = t->quits ? status : show_screen(t);
        }
    }
    return status;
}

static fl_status at_terminal(top *t)
{
    catch_signals();
    FL_TRY(fl_top_screen_open());
    t->view.keys = true;
    fl_status status = watch_run(t);
    fl_top_screen_close();
    if (status == FL_OK && t->model->over) {
        printf("%s: %s\n", t->model->known ? t->model->job : "the run", t->model->how);
    }
    return status == FL_OK && told_to_end != 0 ? fl_fail(FL_ESTOPPED, "stopped") : status;
}

/* ---- the command ---- */

static fl_status run_top(top *t, const fl_args *args)
{
    fl_ctl_place place;
    setlocale(LC_CTYPE, "");
    t->cells.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    FL_TRY(fl_ctl_place_find(args, args->operand, &place));
    FL_TRY(fl_alloc(sizeof *t->model, (void **)&t->model));
    fl_top_model_init(t->model);
    FL_TRY(fl_top_feed_open(&place, t->model, &t->feed));
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    return fl_args_has(args, "--once") || !terminal ? once(t, place.path) : at_terminal(t);
}

static int start_top(const fl_args *args)
{
    top t = {.most_scroll = 0};
    fl_status status = run_top(&t, args);
    fl_top_feed_close(&t.feed);
    fl_top_cells_fini(&t.cells);
    fl_free(t.model);
    if (status != FL_OK && status != FL_ESTOPPED) {
        fl_complain("%s", fl_errmsg());
    }
    return fl_exit_of(status);
}

const fl_cli_command fl_cli_command_top = {
    .name = "top",
    .operand = "RUN",
    .operand_is_optional = true,
    .summary = "Watch a run while it trains, and control it by keys.",
    .details = "RUN is as for frostline ctl; the default is the newest live run. The screen\n"
               "shows the workers by stage and replica, where their time goes, which blocks are\n"
               "frozen, loss and speed over the steps, and the newest events; ? explains the\n"
               "keys. Without a terminal, one frame is printed, of COLUMNS x LINES cells or\n"
               "else 80 x 24.\n",
    .options = {{"--once", 0, NULL, "print one frame as text, then exit"},
                {"--key", 0, "FILE", "your secret key, where RUN is tcp://ADDRESS:PORT"},
                {"--server", 0, "FILE", "the run's public key"}},
    .run = start_top,
};
