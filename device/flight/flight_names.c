/* What operations are called, and of which category they are. */
#include "device/flight/flight.h"

const char *fl_flight_text(fl_flight_kind kind)
{
    static const char *const text[] = {
#define FL_FLIGHT_TEXT(name, words, category) words,
        FL_FLIGHT_MAP(FL_FLIGHT_TEXT)
#undef FL_FLIGHT_TEXT
    };
    return kind < FL_FLIGHT_KINDS ? text[kind] : text[FL_FLIGHT_NONE];
}

fl_flight_category fl_flight_category_of(fl_flight_kind kind)
{
    static const fl_flight_category of[] = {
#define FL_FLIGHT_CATEGORY(name, words, category) FL_FLIGHT_IS_##category,
        FL_FLIGHT_MAP(FL_FLIGHT_CATEGORY)
#undef FL_FLIGHT_CATEGORY
    };
    return kind < FL_FLIGHT_KINDS ? of[kind] : FL_FLIGHT_IS_OTHER;
}

const char *fl_flight_category_text(fl_flight_category category)
{
    static const char *const text[] = {
#define FL_FLIGHT_TEXT(name, words) words,
        FL_FLIGHT_CATEGORIES(FL_FLIGHT_TEXT)
#undef FL_FLIGHT_TEXT
    };
    return category < FL_FLIGHT_N_CATEGORIES ? text[category] : text[FL_FLIGHT_IS_OTHER];
}
