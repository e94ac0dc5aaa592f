/* Which sanitizers the tests are built with, by gcc or clang: what takes minutes under one is cut
 * there, and tested whole by the plain build. */
#ifndef XCI_TEST_SANITIZERS_H
#define XCI_TEST_SANITIZERS_H

#ifdef __has_feature
#define TEST_HAS(feature) __has_feature(feature)
#else
#define TEST_HAS(feature) 0
#endif

#if defined(__SANITIZE_THREAD__) || TEST_HAS(thread_sanitizer)
#define TEST_THREAD_SANITIZER 1
#else
#define TEST_THREAD_SANITIZER 0
#endif

#if defined(__SANITIZE_ADDRESS__) || TEST_HAS(address_sanitizer)
#define TEST_ADDRESS_SANITIZER 1
#else
#define TEST_ADDRESS_SANITIZER 0
#endif

#endif
