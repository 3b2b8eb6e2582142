// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "words.h"

static const char *const known_texts[KNOWN] = {
    [EMPTY] = "",
    [QUESTION] = "?",
    [MANY] = "?+",
    [OPEN] = "(",
    [CLOSE] = ")",
    [OPEN_SQUARE] = "[",
    [CLOSE_SQUARE] = "]",
    [OPEN_BRACE] = "{",
    [CLOSE_BRACE] = "}",
    [COLON] = ":",
    [COMMA] = ",",
    [SEMICOLON] = ";",
    [CAST_SIGN] = "::",
    [DOT] = ".",
    [AT_SIGN] = "@",
    [MINUS] = "-",
    [PLUS] = "+",
    [ARRAY] = "array",
    [ROW] = "row",
    [IN] = "in",
    [SELECT] = "select",
    [DEFAULT] = "default",
    [CAST] = "cast",
    [AS] = "as",
    [INTERVAL] = "interval",
    [CONVERT] = "convert",
    [USING] = "using",
    [CREATE] = "create",
    [DROP] = "drop",
    [PREPARE] = "prepare",
    [SET] = "set",
    [EXECUTE] = "execute",
    [RELEASE] = "release",
    [ROLLBACK] = "rollback",
    [DEALLOCATE] = "deallocate",
    [FETCH] = "fetch",
    [MOVE] = "move",
};

static const struct {
	uint32_t classes;
	const char *words;
} lists[] = {
    {BEGINS | SPACED_BEFORE | KEYWORD,
     "select distinct all where and or not between in like ilike is by limit when then else case "
     "on having any some default using from as except intersect union"},
    {BEGINS_BACKTICK | SPACED_BEFORE | KEYWORD, "xor rlike regexp div mod interval return values"},
    {SPACED_BEFORE | KEYWORD,
     "exists over join with within explain offset set value escape returning into top"},
    {CONSTANT | KEYWORD, "null true false"},
    {KEYWORD, "array e x b n u"},
    {STRUCTURAL, "is not set"},
    /* MySQL Reference Manual, "Supported Character Sets and Collations"; MariaDB has a subset. */
    {INTRODUCER,
     "_armscii8 _ascii _big5 _binary _cp1250 _cp1251 _cp1256 _cp1257 _cp850 _cp852 _cp866 _cp932 "
     "_dec8 _eucjpms _euckr _gb18030 _gb2312 _gbk _geostd8 _greek _hebrew _hp8 _keybcs2 _koi8r "
     "_koi8u _latin1 _latin2 _latin5 _latin7 _macce _macroman _sjis _swe7 _tis620 _ucs2 _ujis "
     "_utf16 _utf16le _utf32 _utf8 _utf8mb3 _utf8mb4"},
    {ROWS_FOLLOW, "values value"},
    {NO_TYPE, "select all distinct values exists not"},
    {SEVERAL_WORDS, "timestamp time double character national bit"},
    {TABLE_FOLLOWS, "from join into update table exists truncate analyze vacuum copy"},
    {TEMPORARY, "temporary temp"},
    {NAMING, "savepoint release rollback prepare execute deallocate declare open close fetch move"},
    {IN_RELEASE, "savepoint"},
    {IN_ROLLBACK, "work transaction to savepoint"},
    {IN_DEALLOCATE, "prepare"},
    {IN_FETCH, "next prior first last absolute relative all forward backward from in"},
    {CLOSER, ") ] */"},
    {TIGHT_BEFORE, ") ] , ; ::"},
    {TIGHT_AFTER, "( [ ::"},
    {UNARY, "- + ~ ! :"},
    {IN_TYPE, ". ( ) [ ] :: ,"},
};

static bool add_list(struct texts *vocabulary, const char *words, uint32_t classes)
{
	while (*words) {
		size_t length = strcspn(words, " ");
		uint32_t number = text_number(vocabulary, (const uint8_t *)words, length);

		if (number == NO_TEXT)
			return false;
		vocabulary->text[number].classes |= classes;
		words += length;
		words += strspn(words, " ");
	}
	return true;
}

bool fill_vocabulary(struct texts *vocabulary, const char *reserved, uint64_t seed)
{
	vocabulary->seed = seed;
	for (size_t i = 0; i < KNOWN; i++) {
		const char *text = known_texts[i];

		if (text_number(vocabulary, (const uint8_t *)text, strlen(text)) != i)
			return false;
	}
	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		if (!add_list(vocabulary, lists[i].words, lists[i].classes))
			return false;
	return add_list(vocabulary, reserved, KEYWORD);
}
