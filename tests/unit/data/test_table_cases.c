/* Hostile tables: each case is a file and what comes of it, the one message that it gives or its
 * rows. Would catch a row that is taken as another one, a crash, a message that names another line,
 * and memory that a failure leaves behind. */
#include "data/table/labels.h"
#include "data/table/table_dataset.h"

#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#define BERT FL_SOURCE_DIR "/tests/reference/tokenizer/bert"

enum { PATH_ROOM = 128, OUTCOME_ROOM = 1024 };

static char folder[FOLDER_SIZE];

static int make(void **state)
{
    (void)state;
    make_folder(folder);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return remove_folder(folder);
}

/* How the bytes get into the file. */
typedef enum packing {
    AS_THEY_ARE,
    PACKED,
    PACKED_IN_TWO,    /* members of gzip, each with half of the bytes */
    PACKED_WITHOUT_8, /* the last 8 bytes, size and checksum, are missing */
    PACKED_AND_ZEROS, /* as a tape pads it */
    PACKED_AND_TEXT,
    PACKED_TWICE
} packing;

typedef struct table_case {
    const char *name, *bytes;
    size_t n;
    const char *outcome;             /* a message, or rows: LINE:TEXT=LABEL, LINE:TEXT+PAIR=LABEL */
    const char *text, *pair, *label; /* columns; NULL: "text", none, "label" */
    packing packing;
} table_case;

/* Bytes with zeros among them. */
#define RAW(raw) .bytes = (raw), .n = sizeof(raw) - 1

#define NO_UTF8 " found, text in UTF-8 allowed; iconv converts other encodings"

static const table_case cases[] = {
    /* no rows */
    {"a.tsv", RAW(""), "data.path: a.tsv: an empty file found, text allowed"},
    {"a.csv", RAW("\xEF\xBB\xBF"), "data.path: a.csv: an empty file found, text allowed"},
    {"a.tsv", RAW("\n\n\r\n"), "data.path: a.tsv: no row found, at least one allowed"},
    {"a.tsv", RAW("text\tlabel\n"), "data.path: a.tsv: no row found, at least one allowed"},
    {"a.jsonl", RAW(" \n\t\n"), "data.path: a.jsonl: no row found, at least one allowed"},

    /* columns */
    {"a.tsv", RAW("Text\tlabel\na\t1\n"),
     "data.text: a.tsv: line 1: no column 'text' found, allowed: 'Text', 'label'"},
    {"a.csv", RAW("\ntext,\"la,bel\"\na,1\n"),
     "data.label: a.csv: line 2: no column 'label' found, allowed: 'text', 'la,bel'"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"lable\": 1}\n"),
     "data.label: a.jsonl: line 2: no column 'label' found, allowed: 'text', 'lable'"},
    {"a.jsonl", RAW("{}"),
     "data.text: a.jsonl: line 1: no column 'text' found, allowed: no name at all"},
    {"a.tsv", RAW("text\x1B\tl\na\t1\n"),
     "data.text: a.tsv: line 1: no column 'text' found, allowed: 'text?', 'l'"},
    {"a.tsv", RAW("text\tlabel\na\t1\nb\n"),
     "data.path: a.tsv: line 3: 1 column found, 2 allowed, as in line 1"},
    {"a.tsv", RAW("text\tlabel\na\t1\t\n"),
     "data.path: a.tsv: line 2: 3 columns found, 2 allowed, as in line 1"},

    /* quotes in CSV */
    {"a.csv", RAW("text,label\na \"b\" c,1\n"),
     "data.path: a.csv: line 2, column 1: a quote within a field found, allowed only where the "
     "whole field stands in quotes, doubled"},
    {"a.csv", RAW("text,label\n\"a\nb,1\nc,2\n"),
     "data.path: a.csv: line 2, column 1: a quote found that no other one closes"},
    {"a.csv", RAW("text,label\n\"a\"b,1\n"),
     "data.path: a.csv: line 2, column 1: text behind the closing quote found, allowed: a comma or "
     "the end of the line; quotes of the text are doubled"},
    {"a.csv", RAW("text,label\nx,\"1\"\r"), "2:x=1"},
    {"a.csv", RAW("text,label\nx,\"1\"\ry,2\n"),
     "data.path: a.csv: line 2, column 2: text behind the closing quote found, allowed: a comma or "
     "the end of the line; quotes of the text are doubled"},
    {"a.csv", RAW("text,label\na,\""),
     "data.path: a.csv: line 2, column 2: a quote found that no other one closes"},

    /* JSON */
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\"\n"),
     "data.path: a.jsonl: line 2, byte 12: no valid JSON: '}' expected near end of file"},
    {"a.jsonl", RAW("[1]\n"),
     "data.path: a.jsonl: line 1: a list found, allowed: an object a line"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"text\": \"b\", \"label\": 1}\n"),
     "data.path: a.jsonl: line 1, byte 20: no valid JSON: duplicate object key near '\"text\"'"},
    {"a.jsonl", RAW("{\"text\": 5, \"label\": 1}\n"),
     "data.path: a.jsonl: line 1: 'text': an integer found, allowed: a text"},
    {"a.jsonl", RAW("{\"text\": null, \"label\": 1}\n"),
     "data.path: a.jsonl: line 1: 'text': null found, allowed: a text"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1.5}\n"),
     "data.path: a.jsonl: line 1: 'label': a number with a fraction found, allowed: a text or an "
     "integer"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": true}\n"),
     "data.path: a.jsonl: line 1: 'label': true or false found, allowed: a text or an integer"},
    {"a.jsonl", RAW("{\"text\": \"a\\u0000\", \"label\": 1}\n"),
     "data.path: a.jsonl: line 1: 'text': a zero byte found, text allowed"},

    /* labels */
    {"a.tsv", RAW("text\tlabel\na\t1\nb\tpos\n"),
     "data.path: a.tsv: line 3: label 'pos' found, allowed: an integer, as '1' in line 2"},
    {"a.tsv", RAW("text\tlabel\na\t1\nb\t02\n"),
     "data.path: a.tsv: line 3: label '02' found, allowed: an integer, as '1' in line 2"},
    {"a.tsv", RAW("text\tlabel\na\tpos\nb\t-1\n"),
     "data.path: a.tsv: line 3: label '-1' found, allowed: a text that is no integer, as 'pos' in "
     "line 2"},
    {"a.tsv", RAW("text\tlabel\na\t\n"),
     "data.path: a.tsv: line 2: an empty label found, allowed: an integer or a text"},

    /* bytes */
    {"a.tsv", RAW("text\tlabel\na\0b\t1\n"),
     "data.path: a.tsv: line 2, byte 2: a zero byte found, text allowed"},
    {"a.tsv", RAW("text\tlabel\nabcdefghijklm\t1\nab\xFF\t1\n"),
     "data.path: a.tsv: line 3, byte 3: 0xFF" NO_UTF8},
    {"a.tsv", RAW("text\tlabel\na\t1\xE2\x82"), "data.path: a.tsv: line 2, byte 4: 0xE2" NO_UTF8},
    {"a.csv", RAW("\xFF\xFEt\0e\0x\0t\0"), "data.path: a.csv: line 1, byte 1: 0xFF" NO_UTF8},

    /* packing */
    {"a.tsv.gz", RAW("text\tlabel\na\t1\n"),
     "data.path: a.tsv.gz: byte 0: 0x74 0x65 found, gzip's 0x1f 0x8b expected"},

    /* columns by number */
    {"a.tsv", RAW("a\t1\n"), "data.text: a.tsv: line 1: no column '0' found, allowed: 1 to 2",
     .text = "0", .label = "2"},
    {"a.tsv", RAW("a\t1\n"), "data.label: a.tsv: line 1: no column '3' found, allowed: 1 to 2",
     .text = "1", .label = "3"},
    {"a.jsonl", RAW("{\"text\": \"a\"}\n"),
     "data.text: a.jsonl: line 1: no column '1' found, allowed: 'text'", .text = "1", .label = "2"},
    {"a.csv", RAW("a,1\n\"b\n\",2\n\nc,d,3\n"),
     "data.path: a.csv: line 5: 3 columns found, 2 allowed, as in line 1", .text = "1",
     .label = "2"},
    {"a.tsv", RAW("text\tlabel\na\t1\n"),
     "data.path: a.tsv: line 2: label '1' found, allowed: a text that is no integer, as 'label' in "
     "line 1; where line 1 has the names of the columns, give data.label by its name",
     .text = "1", .label = "2"},
    {"a.tsv", RAW("a\t1\n"),
     "data.text: a.tsv: line 1: no column '999999999' found, allowed: 1 to 2", .text = "999999999",
     .label = "2"},
    {"a.tsv", RAW("a\t1\n"),
     "data.text: a.tsv: line 1: no column '9999999999' found, allowed: 'a', '1'",
     .text = "9999999999", .label = "2"},
    {"a.tsv", RAW("a\t1\n"), "data.text: a.tsv: line 1: no column '-1' found, allowed: 'a', '1'",
     .text = "-1", .label = "2"},

    /* marks of the byte order, ends of lines */
    {"a.tsv", RAW("\xEF\xBB\xBFtext\tlabel\na\t1\n"), "2:a=1"},
    {"a.csv", RAW("\xEF\xBB\xBF\"text\",label\na,1\n"), "2:a=1"},
    {"a.tsv", RAW("\xEF\xBB\xBF\xEF\xBB\xBFtext\tlabel\na\t1\n"),
     "data.text: a.tsv: line 1: no column 'text' found, allowed: '\xEF\xBB\xBFtext', 'label'"},
    {"a.tsv",
     RAW("text\tlabel\n\xEF\xBB\xBF"
         "a\t1\n"),
     "2:\xEF\xBB\xBF"
     "a=1"},
    {"a.tsv", RAW("\xFE\xFF\0t\0e"), "data.path: a.tsv: line 1, byte 1: 0xFE" NO_UTF8},
    {"a.tsv", RAW("text\tlabel\r\na\t1\r\nb\t2\n"), "2:a=1 3:b=2"},
    {"a.tsv", RAW("text\tlabel\ra\t1\r"),
     "data.label: a.tsv: line 1: no column 'label' found, allowed: 'text', 'label?a', '1'"},
    {"a.csv", RAW("text,label\ra,1\r"),
     "data.label: a.csv: line 1: no column 'label' found, allowed: 'text', 'label?a', '1'"},
    {"a.tsv", RAW("text\tlabel\na\rb\t1\r\n"), "2:a\rb=1"},
    {"a.csv", RAW("text,label\na,1\r\r\n"), "2:a=1\r"},
    {"a.tsv", RAW("\n\r\n\ntext\tlabel\n\n\na\t1\n\n"), "7:a=1"},
    {"a.tsv", RAW("text\tlabel\na\t1"), "2:a=1"},
    {"a.tsv", RAW("text\tlabel\na\t1\r"), "2:a=1"},
    {"a.tsv", RAW("text\tlabel\nx\xC2\x85y\xE2\x80\xA8z\t1\n"), "2:x\xC2\x85y\xE2\x80\xA8z=1"},
    {"a.tsv", RAW("text\tlabel\na\vb\fc\x1A\t1\n"),
     "2:a\x0B"
     "b\x0C"
     "c\x1A=1"},

    /* names of columns that come twice, are empty, or have blanks */
    {"a.tsv", RAW("text\ttext\tlabel\na\tb\t1\n"),
     "data.text: a.tsv: line 1: columns 1 and 2 are both named 'text', allowed: a name that one "
     "column has, or a number"},
    {"a.csv", RAW("text,label,label\na,1,2\n"),
     "data.label: a.csv: line 1: columns 2 and 3 are both named 'label', allowed: a name that one "
     "column has, or a number"},
    {"a.csv", RAW("text,other,other,label\na,b,c,1\n"), "2:a=1"},
    {"a.csv", RAW("text ,label\na,1\n"),
     "data.text: a.csv: line 1: no column 'text' found, allowed: 'text ', 'label'"},
    {"a.tsv", RAW("\"text\"\tlabel\na\t1\n"),
     "data.text: a.tsv: line 1: no column 'text' found, allowed: '\"text\"', 'label'"},
    {"a.tsv", RAW("\tlabel\na\t1\n"),
     "data.text: a.tsv: line 1: no column 'text' found, allowed: '', 'label'"},
    {"a.tsv", RAW("text\tlabel\na\tb\n"),
     "data.pair: a.tsv: line 1: no column 'text2' found, allowed: 'text', 'label'",
     .pair = "text2"},
    {"a.tsv", RAW("text\tlabel\tb\na\t1\t\n"), "2:a+=1", .pair = "b"},

    /* ragged rows */
    {"a.csv", RAW("text,label\na\n"),
     "data.path: a.csv: line 2: 1 column found, 2 allowed, as in line 1"},
    {"a.csv", RAW("text,label\na,1,\n"),
     "data.path: a.csv: line 2: 3 columns found, 2 allowed, as in line 1"},
    {"a.csv", RAW("text,label\nSo, so,1\n"),
     "data.path: a.csv: line 2: 3 columns found, 2 allowed, as in line 1"},
    {"a.csv", RAW("text;label\na;1\n"),
     "data.text: a.csv: line 1: no column 'text' found, allowed: 'text;label'"},
    {"a.csv", RAW("text,label\n,1\n"), "2:=1"},
    {"a.tsv", RAW("text\tlabel\n\t1\n"), "2:=1"},
    {"a.tsv", RAW("text\tlabel\n \t1\n"), "2: =1"},
    {"a.tsv", RAW("text\tlabel\n\t\n"),
     "data.path: a.tsv: line 2: an empty label found, allowed: an integer or a text"},
    {"a.csv", RAW("text,label\n,\n"),
     "data.path: a.csv: line 2: an empty label found, allowed: an integer or a text"},

    /* more of quotes */
    {"a.csv", RAW("text,label\n\"\",1\n"), "2:=1"},
    {"a.csv", RAW("text,label\n\"\"\"\",1\n"), "2:\"=1"},
    {"a.csv", RAW("text,label\n\"\"\",1\n"),
     "data.path: a.csv: line 2, column 1: a quote found that no other one closes"},
    {"a.csv", RAW("text,label\n\"a\r\nb\",1\n\"c\",2"), "2:a\r\nb=1 4:c=2"},
    {"a.csv", RAW("text,label\n \"a\",1\n"),
     "data.path: a.csv: line 2, column 1: a quote within a field found, allowed only where the "
     "whole field stands in quotes, doubled"},
    {"a.csv", RAW("text,label\n\"a\" ,1\n"),
     "data.path: a.csv: line 2, column 1: text behind the closing quote found, allowed: a comma or "
     "the end of the line; quotes of the text are doubled"},
    {"a.csv", RAW("\"text\",\"label\"\n'a,b',1\n"),
     "data.path: a.csv: line 2: 3 columns found, 2 allowed, as in line 1"},
    {"a.csv", RAW("text,label\na\\\"b,1\n"),
     "data.path: a.csv: line 2, column 1: a quote within a field found, allowed only where the "
     "whole field stands in quotes, doubled"},
    {"a.csv", RAW("\""),
     "data.path: a.csv: line 1, column 1: a quote found that no other one closes"},
    {"a.csv", RAW("text,label\n\"a,1\nb,2\n\"\"\n"),
     "data.path: a.csv: line 2, column 1: a quote found that no other one closes"},

    /* more of JSON */
    {"a.jsonl", RAW("\xEF\xBB\xBF{\"text\": \"a\", \"label\": 1}"), "1:a=1"},
    {"a.jsonl", RAW("{\"text\": \"\\ud800\", \"label\": 1}"),
     "data.path: a.jsonl: line 1, byte 17: no valid JSON: invalid Unicode '\\uD800' near "
     "'\"\\ud800\"'"},
    {"a.jsonl", RAW("{\"text\": \"\\udc00x\", \"label\": 1}"),
     "data.path: a.jsonl: line 1, byte 18: no valid JSON: invalid Unicode '\\uDC00' near "
     "'\"\\udc00x\"'"},
    {"a.jsonl", RAW("{\"text\": \"\\ud83d\\ude00\", \"label\": 1}"), "1:\xF0\x9F\x98\x80=1"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1} {\"text\": \"b\", \"label\": 1}"),
     "data.path: a.jsonl: line 1, byte 27: no valid JSON: end of file expected near '{'"},
    {"a.jsonl", RAW("{\n\"text\": \"a\", \"label\": 1}"),
     "data.path: a.jsonl: line 1, byte 1: no valid JSON: string or '}' expected near end of file"},
    {"a.jsonl", RAW("{\"text\": \"a\nb\", \"label\": 1}"),
     "data.path: a.jsonl: line 1, byte 11: no valid JSON: premature end of input near '\"a'"},
    {"a.jsonl", RAW("{\"text\": \"a\tb\", \"label\": 1}"),
     "data.path: a.jsonl: line 1, byte 11: no valid JSON: control character 0x9 near '\"a'"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 12345678901234567890}"),
     "data.path: a.jsonl: line 1, byte 43: no valid JSON: too big integer near "
     "'12345678901234567890'"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1e2}"),
     "data.path: a.jsonl: line 1: 'label': a number with a fraction found, allowed: a text or an "
     "integer"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": -0}"), "1:a=0"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": NaN}"),
     "data.path: a.jsonl: line 1, byte 26: no valid JSON: invalid token near 'NaN'"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": [1]}"),
     "data.path: a.jsonl: line 1: 'label': a list found, allowed: a text or an integer"},
    {"a.jsonl", RAW("{\"text\": [\"a\"], \"label\": 1}"),
     "data.path: a.jsonl: line 1: 'text': a list found, allowed: a text"},
    {"a.jsonl", RAW("{\"text\": {\"text\": \"a\"}, \"label\": 1}"),
     "data.path: a.jsonl: line 1: 'text': an object found, allowed: a text"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": \"\"}"),
     "data.path: a.jsonl: line 1: an empty label found, allowed: an integer or a text"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": \"1\"}\n"),
     "1:a=1 2:b=1"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": \"x\"}\n"),
     "data.path: a.jsonl: line 2: label 'x' found, allowed: an integer, as '1' in line 1"},
    {"a.jsonl", RAW("{'text': 'a', 'label': 1}"),
     "data.path: a.jsonl: line 1, byte 2: no valid JSON: string or '}' expected near '''"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1,}"),
     "data.path: a.jsonl: line 1, byte 26: no valid JSON: string or '}' expected near '}'"},
    {"a.jsonl", RAW("\"text\""),
     "data.path: a.jsonl: line 1: a text found, allowed: an object a line"},
    {"a.jsonl", RAW("null\n"), "data.path: a.jsonl: line 1: null found, allowed: an object a line"},
    {"a.jsonl", RAW("[{\"text\": \"a\", \"label\": 1}]"),
     "data.path: a.jsonl: line 1: a list found, allowed: an object a line"},
    {"a.jsonl", RAW("{\"text\": \"a\", \"label\": 1}\n\0\n"),
     "data.path: a.jsonl: line 2, byte 1: a zero byte found, text allowed"},
    {"a.jsonl", RAW("{\"te\\u0000xt\": \"a\", \"label\": 1}"),
     "data.path: a.jsonl: line 1, byte 13: no valid JSON: NUL byte in object key not supported "
     "near '\"te\\u0000xt\"'"},

    /* more of labels */
    {"a.tsv", RAW("text\tlabel\na\t-0\nb\t1\n"),
     "data.path: a.tsv: line 3: label '1' found, allowed: a text that is no integer, as '-0' in "
     "line 2"},
    {"a.tsv", RAW("text\tlabel\na\t+1\nb\t1\n"),
     "data.path: a.tsv: line 3: label '1' found, allowed: a text that is no integer, as '+1' in "
     "line 2"},
    {"a.tsv", RAW("text\tlabel\na\t 1\nb\t1\n"),
     "data.path: a.tsv: line 3: label '1' found, allowed: a text that is no integer, as ' 1' in "
     "line 2"},
    {"a.tsv", RAW("text\tlabel\na\t1.0\nb\t1\n"),
     "data.path: a.tsv: line 3: label '1' found, allowed: a text that is no integer, as '1.0' in "
     "line 2"},
    {"a.tsv", RAW("text\tlabel\na\t999999999999999999\nb\t-999999999999999999\n"),
     "2:a=999999999999999999 3:b=-999999999999999999"},
    {"a.tsv", RAW("text\tlabel\na\t1\nb\t9999999999999999999\n"),
     "data.path: a.tsv: line 3: label '9999999999999999999' found, allowed: an integer, as '1' in "
     "line 2"},
    {"a.tsv", RAW("text\tlabel\na\tpos\nb\tPos\nc\tpos \n"), "2:a=pos 3:b=Pos 4:c=pos "},

    /* more of bytes */
    {"a.tsv", RAW("text\tlabel\n\xED\xA0\x80\t1\n"),
     "data.path: a.tsv: line 2, byte 1: 0xED" NO_UTF8},
    {"a.tsv", RAW("text\tlabel\n\xC0\x80\t1\n"), "data.path: a.tsv: line 2, byte 1: 0xC0" NO_UTF8},
    {"a.tsv", RAW("text\tlabel\n\xF4\x90\x80\x80\t1\n"),
     "data.path: a.tsv: line 2, byte 1: 0xF4" NO_UTF8},
    {"a.tsv", RAW("text\tlabel\n\xE0\x9F\xBF\t1\n"),
     "data.path: a.tsv: line 2, byte 1: 0xE0" NO_UTF8},
    {"a.tsv", RAW("text\tlabel\n\xF0\x9F\x98\t1\n"),
     "data.path: a.tsv: line 2, byte 1: 0xF0" NO_UTF8},
    {"a.tsv", RAW("te\x80t\tlabel\na\t1\n"), "data.path: a.tsv: line 1, byte 3: 0x80" NO_UTF8},
    {"a.tsv", RAW("\0"), "data.path: a.tsv: line 1, byte 1: a zero byte found, text allowed"},
    {"a.tsv", RAW("\xEF\xBB"), "data.path: a.tsv: line 1, byte 1: 0xEF" NO_UTF8},

    /* more of packing */
    {"a.tsv.gz", RAW("text\tlabel\na\t1\n"), "2:a=1", .packing = PACKED},
    {"a.TSV.GZ", RAW("text\tlabel\na\t1\n"), "2:a=1", .packing = PACKED},
    {"a.tsv", RAW("text\tlabel\na\t1\n"), "2:a=1", .packing = PACKED},
    {"a.tsv.gz", RAW("text\tlabel\nabc\t1\n"), "2:abc=1", .packing = PACKED_IN_TWO},
    {"a.tsv.gz", RAW("text\tlabel\na\t1\n"),
     "data.path: a.tsv.gz: byte 27: the end of the file found, more gzip data expected (15 bytes "
     "unpacked so far)",
     .packing = PACKED_WITHOUT_8},
    {"a.tsv.gz", RAW("text\tlabel\na\t1\n"),
     "data.path: a.tsv.gz: byte 35: trailing bytes found after the gzip data, the end of the file "
     "expected",
     .packing = PACKED_AND_ZEROS},
    {"a.tsv.gz", RAW("text\tlabel\na\t1\n"),
     "data.path: a.tsv.gz: byte 35: trailing bytes found after the gzip data, the end of the file "
     "expected",
     .packing = PACKED_AND_TEXT},
    {"a.tsv.gz", RAW("text\tlabel\na\t1\n"), "data.path: a.tsv.gz: line 1, byte 2: 0x8B" NO_UTF8,
     .packing = PACKED_TWICE},
    {"a.tsv.gz", RAW(""), "data.path: a.tsv.gz: an empty file found, text allowed",
     .packing = PACKED},
    {"a.tsv.gz", RAW(""),
     "data.path: a.tsv.gz: byte 0: the end of the file found, gzip's 0x1f 0x8b expected"},
    {"a.tsv.gz", RAW("\x1F"),
     "data.path: a.tsv.gz: byte 1: the end of the file found, gzip's 0x1f 0x8b expected"},
    {"a.tsv.gz", RAW("\x1F\x8B"),
     "data.path: a.tsv.gz: byte 2: the end of the file found, more gzip data expected (0 bytes "
     "unpacked so far)"},
    {"a.jsonl.gz", RAW("{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": 1}"),
     "data.path: a.jsonl.gz: line 2: 'text': an integer found, allowed: a text", .packing = PACKED},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* ---- the file of a case ---- */

static size_t pack_bytes(const char *bytes, size_t n, uint8_t *out, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (z_const Bytef *)bytes;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    n = z.total_out;
    assert_int_equal(deflateEnd(&z), Z_OK);
    return n;
}

static size_t pack_case(const table_case *c, uint8_t *out, size_t room)
{
    static const uint8_t rest[4] = {0};
    uint8_t once[OUTCOME_ROOM];
    size_t half = c->packing == PACKED_IN_TWO ? c->n / 2 : 0;
    size_t n = half > 0 ? pack_bytes(c->bytes, half, out, room) : 0;
    n += pack_bytes(c->bytes + half, c->n - half, out + n, room - n);
    switch (c->packing) {
    case PACKED_WITHOUT_8:
        return n - 8;
    case PACKED_AND_ZEROS:
    case PACKED_AND_TEXT:
        memcpy(out + n, c->packing == PACKED_AND_TEXT ? "text" : (const char *)rest, sizeof rest);
        return n + sizeof rest;
    case PACKED_TWICE:
        memcpy(once, out, n);
        return pack_bytes((const char *)once, n, out, room);
    default:
        return n;
    }
}

static void write_case(const table_case *c, char path[PATH_ROOM])
{
    uint8_t packed[OUTCOME_ROOM];
    bool plain = c->packing == AS_THEY_ARE;
    size_t n = plain ? c->n : pack_case(c, packed, sizeof packed);
    snprintf(path, PATH_ROOM, "%s/%s", folder, c->name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(plain ? (const void *)c->bytes : packed, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* ---- what comes of it ---- */

static void put_rows(const fl_table_options *o, char outcome[OUTCOME_ROOM])
{
    fl_content content;
    fl_table_rows rows;
    const fl_table_columns columns = {.name = {o->text, o->pair, o->label}};
    assert_int_equal(fl__content_read(o->path[FL_TRAIN], FL_TABLE_LINE_BYTES_MAX, &content), FL_OK);
    assert_int_equal(fl__table_rows_read(&content, &columns, &rows), FL_OK);
    for (size_t i = 0, used = 0; i < rows.n; i++) {
        const fl_text *cell = rows.row[i].cell;
        bool pair = o->pair != NULL;
        used += (size_t)snprintf(outcome + used, OUTCOME_ROOM - used, "%s%d:%.*s%s%.*s=%.*s",
                                 i == 0 ? "" : " ", (int)rows.row[i].line,
                                 (int)cell[FL_TABLE_TEXT].n_bytes, cell[FL_TABLE_TEXT].bytes,
                                 pair ? "+" : "", pair ? (int)cell[FL_TABLE_PAIR].n_bytes : 0,
                                 pair ? cell[FL_TABLE_PAIR].bytes : "",
                                 (int)cell[FL_TABLE_LABEL].n_bytes, cell[FL_TABLE_LABEL].bytes);
        assert_true(used < OUTCOME_ROOM);
    }
    fl__table_rows_fini(&rows);
    fl__content_fini(&content);
}

/* The message, with the folder's path taken out of it. */
static void put_message(char outcome[OUTCOME_ROOM])
{
    size_t n = strlen(folder) + 1;
    snprintf(outcome, OUTCOME_ROOM, "%s", fl_errmsg());
    for (char *at = strstr(outcome, folder); at != NULL; at = strstr(outcome, folder)) {
        memmove(at, at + n, strlen(at + n) + 1);
    }
}

static void check_case(const table_case *c)
{
    char path[PATH_ROOM], outcome[OUTCOME_ROOM];
    fl_dataset d = {0};
    write_case(c, path);
    const fl_table_options o = {.path = {path},
                                .text = c->text == NULL ? "text" : c->text,
                                .pair = c->pair,
                                .label = c->label == NULL ? "label" : c->label,
                                .tokenizer = BERT,
                                .max_tokens = 64,
                                .types = true};
    if (fl_dataset_table_open(&o, &d, NULL) == FL_OK) {
        fl_dataset_destroy(&d);
        put_rows(&o, outcome);
    } else {
        assert_null(d.ops);
        put_message(outcome);
    }
    assert_string_equal(outcome, c->outcome);
    assert_int_equal(unlink(path), 0);
}

static void test_table_cases__each_has_one_outcome(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        check_case(&cases[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_cases__each_has_one_outcome),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
