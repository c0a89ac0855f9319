#include "launcher/top/draw/top_cells.h"

#include "device/system/alloc.h"
#include "device/text/utf8.h"

#include <stdarg.h>
#include <string.h>

fl_status fl_top_cells_resize(fl_top_cells *cells, int width, int height)
{
    fl_top_cell *memory = NULL;
    width = width < 0 ? 0 : width > FL_TOP_SIDE_MAX ? FL_TOP_SIDE_MAX : width;
    height = height < 0 ? 0 : height > FL_TOP_SIDE_MAX ? FL_TOP_SIDE_MAX : height;
    FL_TRY(fl_alloc_array((size_t)(width * height) + 1, sizeof *memory, (void **)&memory));
    fl_free(cells->cell);
    cells->cell = memory;
    cells->width = width;
    cells->height = height;
    fl_top_cells_clear(cells);
    return FL_OK;
}

void fl_top_cells_fini(fl_top_cells *cells)
{
    fl_free(cells->cell);
    *cells = (fl_top_cells){.unicode = cells->unicode};
}

void fl_top_cells_clear(fl_top_cells *cells)
{
    for (int i = 0; i < cells->width * cells->height; i++) {
        cells->cell[i] = (fl_top_cell){' ', FL_TOP_PLAIN};
    }
}

uint32_t fl_top_glyph(const fl_top_cells *cells, uint32_t unicode, char ascii)
{
    return cells->unicode ? unicode : (unsigned char)ascii;
}

void fl_top_put(fl_top_cells *cells, int x, int y, fl_top_style style, uint32_t glyph)
{
    if (x >= 0 && y >= 0 && x < cells->width && y < cells->height) {
        cells->cell[y * cells->width + x] = (fl_top_cell){glyph, style};
    }
}

void fl_top_fill(fl_top_cells *cells, int x, int y, int n, fl_top_style style, uint32_t glyph)
{
    n = n < cells->width - x ? n : cells->width - x;
    for (int i = x < 0 ? -x : 0; i < n; i++) {
        fl_top_put(cells, x + i, y, style, glyph);
    }
}

/* Letters of the scripts that every terminal shows in one cell, and the signs that we draw with. */
static bool is_one_cell(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0x20, 0x7e},     {0xa1, 0xac},    {0xae, 0x2ff},    {0x370, 0x377},
                  {0x384, 0x482},   {0x48a, 0x52f},  {0x2010, 0x2027}, {0x2190, 0x21ff},
                  {0x2500, 0x259f}, {0x2800, 0x28ff}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (c >= ranges[i].first && c <= ranges[i].last) {
            return true;
        }
    }
    return false;
}

/* The next character of text, which is ended by 0, as it may be shown. */
static uint32_t next_glyph(const fl_top_cells *cells, const char **text)
{
    uint32_t code = 0;
    size_t n = fl_utf8_next(*text, strnlen(*text, 4), &code);
    *text += n == 0 ? 1 : n;
    bool shown = n > 0 && is_one_cell(code) && (cells->unicode || code < 0x7f);
    return shown ? code : '?';
}

int fl_top_text(fl_top_cells *cells, int x, int y, int room, fl_top_style style, const char *text)
{
    room = room < cells->width - x ? room : cells->width - x;
    int end = x + room;
    while (*text != 0 && x < end) {
        uint32_t glyph = next_glyph(cells, &text);
        bool cut = x == end - 1 && *text != 0;
        fl_top_put(cells, x, y, style, cut ? fl_top_glyph(cells, 0x2026, '~') : glyph);
        x++;
    }
    return x;
}

/* Where the line of `room` cells ends that begins with text: at a space, if it has one. */
static const char *line_end(const fl_top_cells *cells, const char *text, int room)
{
    const char *space = NULL;
    for (int n = 0; *text != 0; n++) {
        space = *text == ' ' ? text : space;
        if (n == room) {
            return space == NULL ? text : space;
        }
        (void)next_glyph(cells, &text);
    }
    return text;
}

static const char *skip_spaces(const char *text)
{
    return text + strspn(text, " ");
}

int fl_top_n_lines(const fl_top_cells *cells, int room, int most, const char *text)
{
    int n = 0;
    for (text = skip_spaces(text); *text != 0 && n < most && room > 0; n++) {
        text = skip_spaces(line_end(cells, text, room));
    }
    return n;
}

void fl_top_lines(fl_top_cells *cells, int x, int y, int room, int n, fl_top_style style,
                  const char *text)
{
    text = skip_spaces(text);
    for (int i = 0; i + 1 < n; i++) {
        const char *end = line_end(cells, text, room);
        for (int at = x; text < end; at++) {
            fl_top_put(cells, at, y + i, style, next_glyph(cells, &text));
        }
        text = skip_spaces(text);
    }
    fl_top_text(cells, x, y + n - 1, room, style, text);
}

int fl_top_printf(fl_top_cells *cells, int x, int y, int room, fl_top_style style,
                  const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fl_top_text(cells, x, y, room, style, text);
}

void fl_top_utf8(uint32_t glyph, char bytes[5])
{
    memset(bytes, 0, 5);
    if (glyph < 0x80) {
        bytes[0] = (char)glyph;
    } else if (glyph < 0x800) {
        bytes[0] = (char)(0xc0 | (glyph >> 6));
        bytes[1] = (char)(0x80 | (glyph & 0x3f));
    } else {
        bytes[0] = (char)(0xe0 | ((glyph >> 12) & 0xf)); /* nothing above U+FFFF is ever put */
        bytes[1] = (char)(0x80 | ((glyph >> 6) & 0x3f));
        bytes[2] = (char)(0x80 | (glyph & 0x3f));
    }
}

static int used_width(const fl_top_cells *cells, int y)
{
    int x = cells->width;
    while (x > 0 && cells->cell[y * cells->width + x - 1].glyph == ' ') {
        x--;
    }
    return x;
}

void fl_top_cells_write(const fl_top_cells *cells, FILE *out)
{
    char bytes[5];
    int height = cells->height;
    while (height > 0 && used_width(cells, height - 1) == 0) {
        height--;
    }
    for (int y = 0; y < height; y++) {
        int width = used_width(cells, y);
        for (int x = 0; x < width; x++) {
            fl_top_utf8(cells->cell[y * cells->width + x].glyph, bytes);
            fputs(bytes, out);
        }
        fputc('\n', out);
    }
}
