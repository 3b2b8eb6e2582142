// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
#include "statement.h"

struct statement statement_of(const struct lexer *lexer)
{
	return (struct statement){
	    .lexer = lexer,
	    .texts = {.base = lexer->vocabulary, .seed = lexer->vocabulary->seed},
	};
}

void statement_free(struct statement *statement)
{
	texts_free(&statement->texts);
	free(statement->tokens);
	free(statement->scratch.data);
}
