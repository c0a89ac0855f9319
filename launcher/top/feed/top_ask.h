/* From keys to requests: every command is asked for once more before it is sent. Pure. */
#ifndef FL_LAUNCHER_TOP_FEED_TOP_ASK_H
#define FL_LAUNCHER_TOP_FEED_TOP_ASK_H

#include "launcher/top/model/top_model.h"

/* Keys that are no character. */
enum {
    FL_TOP_KEY_ENTER = '\n',
    FL_TOP_KEY_ESCAPE = 27,
    FL_TOP_KEY_ERASE = 127,
    FL_TOP_KEY_UP = 0x110000,
    FL_TOP_KEY_DOWN,
    FL_TOP_KEY_PAGE_UP,
    FL_TOP_KEY_PAGE_DOWN,
};

typedef enum fl_top_deed {
    FL_TOP_DEED_NONE,
    FL_TOP_DEED_SEND, /* the request */
    FL_TOP_DEED_HELP,
    FL_TOP_DEED_QUIT,
    FL_TOP_DEED_SCROLL, /* by `scroll` workers */
} fl_top_deed;

enum {
    FL_TOP_INPUT_MAX = FL_HOST_TEXT - 1,
    FL_TOP_ARGS_MAX = FL_HOST_TEXT + 64,
    FL_TOP_QUESTION_MAX = 2 * FL_TOP_ARGS_MAX,
};

typedef struct fl_top_request {
    const char *command;        /* of the control socket */
    char args[FL_TOP_ARGS_MAX]; /* a JSON object */
    char text[FL_TOP_ARGS_MAX]; /* for people: "scale to 2 devices" */
} fl_top_request;

/* Zeroed: nothing is being asked. */
typedef struct fl_top_ask {
    enum { FL_TOP_ASK_NOTHING, FL_TOP_ASK_INPUT, FL_TOP_ASK_WHEN, FL_TOP_ASK_SURE } at;
    int key; /* that began it */
    char input[FL_TOP_INPUT_MAX + 1];
    fl_top_request request;
    char question[FL_TOP_QUESTION_MAX]; /* "": nothing is asked */
} fl_top_ask;

/* One key; with DEED_SEND the request is complete, with DEED_SCROLL *scroll says by how much. */
fl_top_deed fl_top_ask_key(fl_top_ask *ask, const fl_top_model *model, int key, int *scroll);

#endif
