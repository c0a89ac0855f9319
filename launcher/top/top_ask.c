/* What a key begins, and the way of the question:
 *
 *     p            ────────────────────────> sure? ── y ──> request
 *     s f t d      ──> a number, enter ────>   │
 *     x            ──> now or epoch ───────>   └─ any other ──> nothing */
#include "launcher/top/top_ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 10 };

typedef struct command {
    int key;
    const char *name; /* of the control socket */
    const char *arg;
    const char *asks; /* NULL: nothing */
    const char *text; /* with the number */
} command;

static const command commands[] = {
    {'p', "pause", NULL, NULL, "pause the run"},
    {'s', "scale", "devices", "scale to N devices, or to K x R as 2x1", "scale to %s"},
    {'f', "freeze", "blocks", "number of blocks to freeze", "freeze the first %s blocks"},
    {'t', "thaw", "blocks", "number of blocks to keep frozen", "thaw all but the first %s blocks"},
    {'d', "drain", "worker", "drain which worker", "drain worker %s: it leaves the run"},
    {'x', "stop", NULL, NULL, NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const command *command_of(int key)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (commands[i].key == key) {
            return &commands[i];
        }
    }
    return NULL;
}

static void forget_question(fl_top_ask *a)
{
    a->at = FL_TOP_ASK_NOTHING;
    a->question[0] = 0;
}

static void ask_sure(fl_top_ask *a)
{
    a->at = FL_TOP_ASK_SURE;
    snprintf(a->question, sizeof a->question, "%s?  y: yes, any other key: no", a->request.text);
}

static void ask_input(fl_top_ask *a, const command *c)
{
    a->at = FL_TOP_ASK_INPUT;
    snprintf(a->question, sizeof a->question, "%s: %s_", c->asks, a->input);
}

static void begin_question(fl_top_ask *a, const command *c, const fl_top_model *m)
{
    bool paused = strcmp(m->state, "paused") == 0;
    memset(a, 0, sizeof *a);
    a->key = c->key;
    a->request.command = c->key == 'p' && paused ? "resume" : c->name;
    snprintf(a->request.args, sizeof a->request.args, "{}");
    if (c->asks != NULL) {
        ask_input(a, c);
    } else if (c->key == 'x') {
        a->at = FL_TOP_ASK_WHEN;
        snprintf(a->question, sizeof a->question,
                 "stop the run:  n: now, e: after the epoch, any other key: cancel");
    } else {
        snprintf(a->request.text, sizeof a->request.text, "%s",
                 paused ? "let the run go on" : c->text);
        ask_sure(a);
    }
}

/* "2" or "2x1" into the request; false: it is neither. */
static bool take_input(fl_top_ask *a, const command *c)
{
    char *end;
    long number = strtol(a->input, &end, 10), second = -1;
    if (a->input[0] == 0 || a->input[0] == 'x') {
        return false;
    }
    if (*end == 'x') {
        second = end[1] == 0 ? -1 : strtol(end + 1, &end, 10);
        if (c->key != 's' || second < 0) {
            return false;
        }
    }
    if (*end != 0) {
        return false;
    }
    if (second >= 0) {
        snprintf(a->request.args, sizeof a->request.args, "{\"k\": %ld, \"r\": %ld}", number,
                 second);
        snprintf(a->request.text, sizeof a->request.text, "scale to K=%ld x R=%ld", number, second);
    } else {
        char value[FL_TOP_INPUT_MAX + 16];
        snprintf(a->request.args, sizeof a->request.args, "{\"%s\": %ld}", c->arg, number);
        snprintf(value, sizeof value, c->key == 's' ? "%ld devices" : "%ld", number);
        const char *at = strstr(c->text, "%s");
        snprintf(a->request.text, sizeof a->request.text, "%.*s%s%s", (int)(at - c->text), c->text,
                 value, at + 2);
    }
    return true;
}

static void type(fl_top_ask *a, int key)
{
    const command *c = command_of(a->key);
    size_t n = strlen(a->input);
    bool takes = (key >= '0' && key <= '9') || (key == 'x' && a->key == 's');
    if (key == FL_TOP_KEY_ESCAPE || key == 'q') {
        forget_question(a);
        return;
    }
    if (key == FL_TOP_KEY_ENTER && take_input(a, c)) {
        ask_sure(a);
        return;
    }
    if (key == FL_TOP_KEY_ERASE && n > 0) {
        a->input[n - 1] = 0;
    } else if (takes && n < 7) { /* more digits than anything here has */
        a->input[n] = (char)key;
        a->input[n + 1] = 0;
    }
    ask_input(a, c);
}

static void choose_when(fl_top_ask *a, int key)
{
    bool now = key == 'n';
    if (!now && key != 'e') {
        forget_question(a);
        return;
    }
    snprintf(a->request.args, sizeof a->request.args, "{\"when\": \"%s\"}", now ? "now" : "epoch");
    snprintf(a->request.text, sizeof a->request.text, "stop the run %s",
             now ? "after the step in flight" : "with the epoch");
    ask_sure(a);
}

static fl_top_deed idle_key(fl_top_ask *a, const fl_top_model *m, int key, int *scroll)
{
    const command *c = m->known && !m->over ? command_of(key) : NULL;
    *scroll = key == FL_TOP_KEY_UP          ? -1
              : key == FL_TOP_KEY_DOWN      ? 1
              : key == FL_TOP_KEY_PAGE_UP   ? -PAGE
              : key == FL_TOP_KEY_PAGE_DOWN ? PAGE
                                            : 0;
    if (c != NULL) {
        begin_question(a, c, m);
    }
    return key == 'q'                 ? FL_TOP_DEED_QUIT
           : key == '?' || key == 'h' ? FL_TOP_DEED_HELP
           : *scroll != 0             ? FL_TOP_DEED_SCROLL
                                      : FL_TOP_DEED_NONE;
}

fl_top_deed fl_top_ask_key(fl_top_ask *a, const fl_top_model *m, int key, int *scroll)
{
    bool yes = a->at == FL_TOP_ASK_SURE && (key == 'y' || key == 'Y');
    *scroll = 0;
    switch (a->at) {
    case FL_TOP_ASK_NOTHING:
        return idle_key(a, m, key, scroll);
    case FL_TOP_ASK_INPUT:
        type(a, key);
        return FL_TOP_DEED_NONE;
    case FL_TOP_ASK_WHEN:
        choose_when(a, key);
        return FL_TOP_DEED_NONE;
    case FL_TOP_ASK_SURE:
        break;
    }
    forget_question(a);
    return yes ? FL_TOP_DEED_SEND : FL_TOP_DEED_NONE;
}
