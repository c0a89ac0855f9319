#include "launcher/top/top_screen.h"

#include "launcher/top/feed/top_ask.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NCURSES_WIDECHAR 1
#include <ncurses.h>
#include <term.h>

/* ncurses' macros with these names would replace identifiers of this project. */
#undef lines
#undef columns

static SCREEN *screen;
static attr_t look[FL_TOP_STYLES];

/* What each style is, with colour and without. */
static const struct {
    short colour; /* -1: the terminal's own */
    attr_t with, without;
} looks[FL_TOP_STYLES] = {
    [FL_TOP_PLAIN] = {-1, A_NORMAL, A_NORMAL},
    [FL_TOP_DIM] = {-1, A_DIM, A_DIM},
    [FL_TOP_BOLD] = {-1, A_BOLD, A_BOLD},
    [FL_TOP_TITLE] = {-1, A_BOLD, A_BOLD},
    [FL_TOP_GOOD] = {COLOR_GREEN, A_NORMAL, A_NORMAL},
    [FL_TOP_WARN] = {COLOR_YELLOW, A_NORMAL, A_BOLD},
    [FL_TOP_BAD] = {COLOR_RED, A_BOLD, A_REVERSE},
    [FL_TOP_FROZEN] = {COLOR_CYAN, A_NORMAL, A_NORMAL},
    [FL_TOP_MOVE] = {COLOR_MAGENTA, A_NORMAL, A_NORMAL},
    [FL_TOP_READ] = {COLOR_BLUE, A_NORMAL, A_NORMAL},
    [FL_TOP_KEYS] = {-1, A_REVERSE, A_REVERSE},
};

static bool wants_colour(void)
{
    const char *no = getenv("NO_COLOR");
    return (no == NULL || *no == 0) && has_colors() && start_color() == OK;
}

static void choose_looks(void)
{
    bool colour = wants_colour();
    short ground = colour && use_default_colors() == OK ? -1 : COLOR_BLACK;
    for (int i = 0; i < FL_TOP_STYLES; i++) {
        look[i] = colour ? looks[i].with : looks[i].without;
        if (colour && looks[i].colour >= 0 &&
            init_pair((short)(i + 1), looks[i].colour, ground) == OK) {
            look[i] |= (attr_t)COLOR_PAIR(i + 1);
        }
    }
}

fl_status fl_top_screen_open(void)
{
    const char *term = getenv("TERM");
    screen = newterm(NULL, stdout, stdin);
    if (screen == NULL || cursor_address == NULL) {
        fl_top_screen_close();
        return fl_fail(FL_ENOTSUP,
                       "cannot draw on the terminal %s; frostline top --once prints one frame",
                       term == NULL || *term == 0 ? "(TERM is not set)" : term);
    }
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    set_escdelay(25);
    (void)curs_set(0);
    choose_looks();
    return FL_OK;
}

void fl_top_screen_close(void)
{
    if (screen != NULL) {
        endwin();
        delscreen(screen);
        screen = NULL;
    }
}

fl_status fl_top_screen_fit(fl_top_cells *cells)
{
    int width = getmaxx(stdscr), height = getmaxy(stdscr);
    if (width == cells->width && height == cells->height) {
        return FL_OK;
    }
    clearok(stdscr, TRUE);
    return fl_top_cells_resize(cells, width, height);
}

void fl_top_screen_show(const fl_top_cells *cells)
{
    erase();
    for (int i = 0; i < cells->width * cells->height; i++) {
        const fl_top_cell *from = &cells->cell[i];
        wchar_t text[2] = {(wchar_t)from->glyph, 0};
        cchar_t to;
        attr_t attributes = look[from->style];
        if (setcchar(&to, text, attributes & ~(attr_t)A_COLOR, (short)PAIR_NUMBER((int)attributes),
                     NULL) == OK) {
            (void)mvadd_wch(i / cells->width, i % cells->width, &to);
        }
    }
    refresh();
}

int fl_top_screen_key(int timeout_ms)
{
    timeout(timeout_ms);
    int key = getch();
    switch (key) {
    case ERR:
    case KEY_RESIZE:
        return 0;
    case KEY_UP:
        return FL_TOP_KEY_UP;
    case KEY_DOWN:
        return FL_TOP_KEY_DOWN;
    case KEY_PPAGE:
        return FL_TOP_KEY_PAGE_UP;
    case KEY_NPAGE:
        return FL_TOP_KEY_PAGE_DOWN;
    case KEY_ENTER:
    case '\r':
        return FL_TOP_KEY_ENTER;
    case KEY_BACKSPACE:
    case 8:
        return FL_TOP_KEY_ERASE;
    default:
        return key > 0 && key < KEY_MIN ? key : 0;
    }
}
