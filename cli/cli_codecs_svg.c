/* The rows of xorcast bench codecs as a picture: size against the speed of encoding, and against
 * that of the pause: up is faster, left is smaller, both logarithmic. Written by hand as SVG, with
 * labels that keep out of each other's way. Owns the text until it is written. */
#include "cli_codecs.h"

#include "cli_files.h"
#include "cli_words.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 1120.0
#define HEIGHT 560.0
#define TOP 110.0
#define BOTTOM 500.0
#define PANEL_WIDTH 465.0
#define LETTER 6.2 /* width of one, about, at the size of labels */
#define BOLD 7.4
#define LINE 13.0

static const char style[] =
    "<style>\n"
    "text { font: 11px sans-serif; fill: #222 }\n"
    ".title { font: bold 15px sans-serif }\n"
    ".axis { fill: #555 }\n"
    ".grid { stroke: #e4e4e4; stroke-width: 1 }\n"
    ".frame { fill: none; stroke: #999 }\n"
    ".bound { stroke: #b5432a; stroke-width: 1.2; stroke-dasharray: 4 3 }\n"
    ".boundname { fill: #b5432a }\n"
    ".ours { fill: #1f5fa8; stroke: #fff }\n"
    ".gpu { fill: #2a7d3f; stroke: #fff }\n"
    ".theirs { fill: #fff; stroke: #777; stroke-width: 1.5 }\n"
    ".oursname, .gpuname, .theirsname { paint-order: stroke; stroke: #fff; stroke-width: 3px }\n"
    ".oursname { fill: #1f5fa8; font-weight: bold }\n"
    ".gpuname { fill: #2a7d3f; font-weight: bold }\n"
    ".theirsname { fill: #555 }\n"
    ".leader { stroke: #bbb; stroke-width: 0.8 }\n"
    "</style>\n";

/* A range of an axis, as powers of ten, and where it lies in the picture. */
typedef struct axis {
    double least, most; /* logarithms */
    double from, to;    /* pixels */
} axis;

typedef struct box {
    double left, top, right, bottom;
} box;

typedef struct point {
    const char *kind; /* of the style: ours, gpu, theirs */
    char name[32];
    double x, y;
} point;

typedef struct panel {
    FILE *out;
    axis x, y;
    point points[2 * CLI_CODECS_MOST];
    box labels[2 * CLI_CODECS_MOST];
    uint32_t point_count, label_count;
} panel;

/* ---- Axes -------------------------------------------------------------------------------------*/

static double place(const axis *a, double value) {
    return a->from + (log10(value) - a->least) / (a->most - a->least) * (a->to - a->from);
}

static bool inside(const axis *a, double value) {
    return value > 0 && log10(value) >= a->least && log10(value) <= a->most;
}

static void widen(axis *a, double value) {
    if (!(value > 0) || !isfinite(value))
        return;
    const double at = log10(value);
    a->least = at < a->least ? at : a->least;
    a->most = at > a->most ? at : a->most;
}

/* 1, 2 and 5 times a power of ten. */
static void draw_ticks(const panel *p, const axis *a, bool upright, const char *unit) {
    static const double steps[3] = {1, 2, 5};
    for (int decade = (int)floor(a->least); decade <= (int)ceil(a->most); decade++) {
        for (uint32_t i = 0; i < 3; i++) {
            const double value = steps[i] * pow(10, decade), at = place(a, value);
            if (!inside(a, value))
                continue;
            if (upright)
                fprintf(p->out,
                        "<line class='grid' x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f'/>"
                        "<text class='axis' x='%.1f' y='%.1f' text-anchor='end'>%g</text>\n",
                        p->x.from, at, p->x.to, at, p->x.from - 6, at + 4, value);
            else
                fprintf(p->out,
                        "<line class='grid' x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f'/>"
                        "<text class='axis' x='%.1f' y='%.1f' text-anchor='middle'>%g%s</text>\n",
                        at, p->y.to, at, p->y.from, at, p->y.from + 16, value, unit);
        }
    }
}

/* ---- Labels -----------------------------------------------------------------------------------*/

static bool overlap(const box *a, const box *b) {
    return a->left < b->right && b->left < a->right && a->top < b->bottom && b->top < a->bottom;
}

static bool is_free(const panel *p, const box *label) {
    if (label->left < p->x.from + 2 || label->right > p->x.to - 2 || label->top < p->y.to + 2 ||
        label->bottom > p->y.from - 2)
        return false;
    for (uint32_t i = 0; i < p->point_count; i++) {
        const point *o = &p->points[i];
        const box mark = {o->x - 6, o->y - 6, o->x + 6, o->y + 6};
        if (overlap(label, &mark))
            return false;
    }
    for (uint32_t i = 0; i < p->label_count; i++)
        if (overlap(label, &p->labels[i]))
            return false;
    return true;
}

/* The nearest free place: to the right, the left, above and below, then further away. */
static box find_place(const panel *p, const point *at) {
    const double width = (*at->kind == 't' ? LETTER : BOLD) * (double)strlen(at->name);
    box found = {at->x + 9, at->y - LINE / 2, at->x + 9 + width, at->y + LINE / 2};
    for (uint32_t ring = 0; ring < 12; ring++) {
        for (uint32_t i = 0; i < 12; i++) {
            const double angle = (i % 2 == 0 ? 1.0 : -1.0) * ((i + 1) / 2) * M_PI / 6;
            const double x = at->x + cos(angle) * (9 + 11 * ring + (cos(angle) < 0 ? width : 0)) -
                             (fabs(cos(angle)) < 0.1 ? width / 2 : 0);
            const double y = at->y + sin(angle) * (13 + 11 * ring);
            const box label = {x, y - LINE / 2, x + width, y + LINE / 2};
            if (is_free(p, &label))
                return label;
        }
    }
    return found;
}

static void draw_label(panel *p, const point *at) {
    const box label = find_place(p, at);
    const double middle = (label.left + label.right) / 2;
    const double x = label.left > at->x ? label.left : label.right < at->x ? label.right : middle;
    const double y = (label.top + label.bottom) / 2;
    if (hypot(x - at->x, y - at->y) > 20)
        fprintf(p->out, "<line class='leader' x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f'/>\n", at->x,
                at->y, x, y);
    fprintf(p->out, "<text class='%sname' x='%.1f' y='%.1f'>%s</text>\n", at->kind, label.left,
            label.bottom - 3, at->name);
    p->labels[p->label_count++] = label;
}

/* ---- Panels -----------------------------------------------------------------------------------*/

static double share(const cli_codecs *c, double bytes) {
    return 100 * bytes / (double)c->weight_bytes[CLI_CODEC_CPU];
}

static void draw_bound(panel *p, double percent, const char *name, double above) {
    if (!inside(&p->x, percent))
        return;
    const double x = place(&p->x, percent);
    fprintf(p->out,
            "<line class='bound' x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f'/>"
            "<text class='boundname' x='%.1f' y='%.1f'>%s</text>\n",
            x, p->y.to - above, x, p->y.from, x + 4, p->y.to - above + 8, name);
}

/* Ranges that hold all points, with some room. */
static void set_ranges(const cli_codecs *c, panel *p, uint32_t time) {
    p->x.least = p->y.least = INFINITY;
    p->x.most = p->y.most = -INFINITY;
    widen(&p->x, share(c, c->bounds.order0));
    widen(&p->x, share(c, c->bounds.conditional));
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->rows[i].no_room)
            continue;
        widen(&p->x, share(c, (double)c->rows[i].bytes[CLI_CODEC_CPU]));
        for (uint32_t where = 0; where < CLI_CODEC_PLACES; where++)
            widen(&p->y, cli_codecs_speed(c, &c->rows[i], where, time));
    }
    p->x.least -= 0.1, p->x.most += 0.15;
    p->y.least -= 0.15, p->y.most += 0.15;
}

static void add_point(const cli_codecs *c, panel *p, const cli_codec_row *row, uint32_t where,
                      uint32_t time) {
    const double percent = share(c, (double)row->bytes[CLI_CODEC_CPU]);
    const double speed = cli_codecs_speed(c, row, where, time);
    if (!inside(&p->x, percent) || !inside(&p->y, speed))
        return;
    point *at = &p->points[p->point_count++];
    *at = (point){.kind = row->compared            ? "theirs"
                          : where == CLI_CODEC_GPU ? "gpu"
                                                   : "ours",
                  .x = place(&p->x, percent),
                  .y = place(&p->y, speed)};
    snprintf(at->name, sizeof at->name, where == CLI_CODEC_GPU ? "%s, GPU" : "%s", row->name);
}

static void draw_panel(const cli_codecs *c, FILE *out, uint32_t time, double left,
                       const char *title) {
    panel p = {.out = out,
               .x = {.from = left, .to = left + PANEL_WIDTH},
               .y = {.from = BOTTOM, .to = TOP}};
    set_ranges(c, &p, time);
    if (!(p.x.least < p.x.most) || !(p.y.least < p.y.most))
        return; /* nothing changed: there is nothing to draw */
    draw_ticks(&p, &p.x, false, " %");
    draw_ticks(&p, &p.y, true, "");
    fprintf(out, "<rect class='frame' x='%.1f' y='%.1f' width='%.1f' height='%.1f'/>\n", p.x.from,
            p.y.to, p.x.to - p.x.from, p.y.from - p.y.to);
    fprintf(out, "<text x='%.1f' y='%.1f' text-anchor='middle'>size, share of the weights</text>\n",
            (p.x.from + p.x.to) / 2, BOTTOM + 36);
    fprintf(out,
            "<text x='%.1f' y='%.1f' text-anchor='middle' transform='rotate(-90 %.1f %.1f)'>%s, "
            "GB of weights a second</text>\n",
            left - 44, (TOP + BOTTOM) / 2, left - 44, (TOP + BOTTOM) / 2, title);
    draw_bound(&p, share(c, c->bounds.order0), "order 0", 12);
    draw_bound(&p, share(c, c->bounds.conditional), "given the old weights", 26);
    for (uint32_t i = 0; i < c->count; i++) {
        for (uint32_t where = 0; where < CLI_CODEC_PLACES && !c->rows[i].no_room; where++)
            add_point(c, &p, &c->rows[i], where, time);
    }
    for (uint32_t i = 0; i < p.point_count; i++)
        fprintf(out, "<circle class='%s' cx='%.1f' cy='%.1f' r='4.5'/>\n", p.points[i].kind,
                p.points[i].x, p.points[i].y);
    for (uint32_t i = 0; i < p.point_count; i++)
        draw_label(&p, &p.points[i]);
}

static void draw(const cli_codecs *c, FILE *out) {
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
            "viewBox='0 0 %.0f %.0f'>\n%s<rect width='100%%' height='100%%' fill='#fff'/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, style);
    fprintf(out,
            "<text class='title' x='70' y='30'>Size and speed of a step: %s of weights, %s "
            "of bytes changed</text>\n",
            cli_bytes((double)c->weight_bytes[CLI_CODEC_CPU] / (double)c->steps).text,
            cli_percent((double)c->counts.bytes_changed, (double)c->counts.bytes_covered).text);
    fprintf(out, "<circle class='ours' cx='76' cy='50' r='4.5'/>"
                 "<text class='oursname' x='86' y='54'>codecs of the format</text>"
                 "<circle class='theirs' cx='236' cy='50' r='4.5'/>"
                 "<text class='theirsname' x='246' y='54'>for comparison</text>"
                 "<line class='bound' x1='350' y1='50' x2='376' y2='50'/>"
                 "<text class='boundname' x='382' y='54'>entropy bounds</text>"
                 "<text class='axis' x='490' y='54'>up is faster, left is smaller; both axes are "
                 "logarithmic</text>\n");
    if (c->gpu.there)
        fprintf(out,
                "<circle class='gpu' cx='830' cy='50' r='4.5'/>"
                "<text class='gpuname' x='840' y='54'>on a GPU, %s of weights</text>\n",
                cli_bytes((double)c->weight_bytes[CLI_CODEC_GPU] / (double)c->steps).text);
    draw_panel(c, out, CLI_CODEC_ENCODE, 70, "encode");
    draw_panel(c, out, CLI_CODEC_COMMIT, 70 + PANEL_WIDTH + 80, "commit, the pause");
    fputs("</svg>\n", out);
}

xorcast_status cli_codecs_svg(const cli_codecs *codecs, const cli_output *output) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return cli_fail(codecs->session, XORCAST_NO_HOST_MEMORY, errno, "no memory for a picture");
    draw(codecs, out);
    const bool whole = fclose(out) == 0;
    const int error = whole ? output->sink.write(output->sink.user, text, size) : ENOMEM;
    free(text);
    if (error != 0)
        return cli_fail(codecs->session, XORCAST_IO_FAILED, error, "cannot write the picture");
    return XORCAST_OK;
}
