#include <stdio.h>
int main(void) { puts("stress"); return 0; }
