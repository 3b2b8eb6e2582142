// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The markers: functions that do nothing, called from Java where a thread starts or ends its work
 * for a request. qjoule's probes sit on their first instruction, a no-op that the kernel emulates.
 * Without a probe a marker costs one call; nothing here can fail or block.
 *
 * Needs no C library: the server may run in a container that has a different one.
 */
#include <jni.h>
#include <stdint.h>

#define TEXT_CHARACTERS 4096 /* QJ_TEXT_BYTES of bpf/qjoule.h: longer texts are cut */
#define ENDS_BYTES	36   /* two addresses, two ports */
#define TAGS_BYTES	480  /* of bpf/core/server_state.h: the limit for tags */
#define UTF8_BYTES_MAX	3    /* per UTF-16 unit, in the JVM's modified UTF-8 */

#if defined(__x86_64__)
#define PROBE_SITE ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00" /* a no-op of 5 bytes */
#else
#define PROBE_SITE "nop"
#endif

#define MARKER __attribute__((noinline, noclone, used, visibility("default")))

/*
 * `what`: bits 0-7 enum qj_command, bits 8-39 the number of executions, bits 40 and up the
 * request's number on its connection.
 */
MARKER void qjoule_request_begins(const char *text, uint64_t bytes, uint64_t statement,
				  uint64_t session, uint64_t what)
{
	__asm__ volatile(PROBE_SITE ::"r"(text), "r"(bytes), "r"(statement), "r"(session), "r"(what)
			 : "memory");
}

/* `tags`: entries of CQL's [bytes map]. */
MARKER void qjoule_request_says(const void *tags, uint64_t bytes)
{
	__asm__ volatile(PROBE_SITE ::"r"(tags), "r"(bytes) : "memory");
}

/* `ends` of the connection as in struct qj_session: two addresses, two ports. */
MARKER void qjoule_connection_met(uint64_t session, const void *ends)
{
	__asm__ volatile(PROBE_SITE ::"r"(session), "r"(ends) : "memory");
}

MARKER void qjoule_request_ends(void)
{
	__asm__ volatile(PROBE_SITE);
}

MARKER void qjoule_task_queued(uint64_t request)
{
	__asm__ volatile(PROBE_SITE ::"r"(request));
}

MARKER void qjoule_task_begins(uint64_t request)
{
	__asm__ volatile(PROBE_SITE ::"r"(request));
}

MARKER void qjoule_task_ends(uint64_t request)
{
	__asm__ volatile(PROBE_SITE ::"r"(request));
}

/* In modified UTF-8 the only zero byte is the terminator. */
static uint64_t bytes_of(const char *text)
{
	uint64_t bytes = 0;

	while (text[bytes])
		bytes++;
	return bytes;
}

JNIEXPORT void JNICALL Java_qjoule_agent_cassandra_Marker_requestBegins(
    JNIEnv *env, jclass type, jstring text, jlong statement, jlong session, jint command,
    jint executions, jint stream)
{
	char copy[TEXT_CHARACTERS * UTF8_BYTES_MAX + 1];
	uint64_t bytes = 0;
	jsize characters;

	(void)type;
	copy[0] = '\0';
	if (text) {
		characters = (*env)->GetStringLength(env, text);
		(*env)->GetStringUTFRegion(
		    env, text, 0, characters < TEXT_CHARACTERS ? characters : TEXT_CHARACTERS,
		    copy);
		bytes = bytes_of(copy);
		if (characters > TEXT_CHARACTERS && bytes < (uint64_t)characters)
			bytes = characters;
	}
	qjoule_request_begins(text ? copy : 0, bytes, statement, session,
			      (uint64_t)(uint16_t)stream << 40 |
				  (uint64_t)(uint32_t)executions << 8 | (uint8_t)command);
}

JNIEXPORT void JNICALL Java_qjoule_agent_cassandra_Marker_requestSays(JNIEnv *env, jclass type,
								      jbyteArray tags)
{
	jbyte copy[TAGS_BYTES];
	jsize bytes = (*env)->GetArrayLength(env, tags);

	(void)type;
	if (bytes > TAGS_BYTES)
		return;
	(*env)->GetByteArrayRegion(env, tags, 0, bytes, copy);
	qjoule_request_says(copy, bytes);
}

JNIEXPORT void JNICALL Java_qjoule_agent_cassandra_Marker_connectionMet(JNIEnv *env, jclass type,
									jlong session,
									jbyteArray ends)
{
	jbyte copy[ENDS_BYTES] = {0};

	(void)type;
	if ((*env)->GetArrayLength(env, ends) != ENDS_BYTES)
		return;
	(*env)->GetByteArrayRegion(env, ends, 0, ENDS_BYTES, copy);
	qjoule_connection_met(session, copy);
}

JNIEXPORT void JNICALL Java_qjoule_agent_cassandra_Marker_requestEnds(JNIEnv *env, jclass type)
{
	(void)env;
	(void)type;
	qjoule_request_ends();
}

JNIEXPORT void JNICALL Java_qjoule_agent_cassandra_Marker_taskQueued(JNIEnv *env, jclass type,
								     jlong request)
{
	(void)env;
	(void)type;
	qjoule_task_queued(request);
}

JNIEXPORT void JNICALL Java_qjoule_agent_cassandra_Marker_taskBegins(JNIEnv *env, jclass type,
								     jlong request)
{
	(void)env;
	(void)type;
	qjoule_task_begins(request);
}

JNIEXPORT void JNICALL Java_qjoule_agent_cassandra_Marker_taskEnds(JNIEnv *env, jclass type,
								   jlong request)
{
	(void)env;
	(void)type;
	qjoule_task_ends(request);
}
