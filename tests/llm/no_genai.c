/* no_genai.c: a library with one function, and none of ONNX Runtime GenAI's. */
int llm_no_genai(void);

int llm_no_genai(void)
{
    return 0;
}
