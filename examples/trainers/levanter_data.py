"""What levanter.yaml reads: tokens.jsonl, and a tokenizer, so that none is downloaded.

python examples/trainers/levanter_data.py
"""

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

WORDS, TOKENS, ROWS = 64, 64, 128

rows = ([(7 * row + 3 * i) % WORDS for i in range(TOKENS)] for row in range(ROWS))
Path("tokens.jsonl").write_text("".join(f"{json.dumps({'input_ids': row})}\n" for row in rows))

words = {str(number): number for number in range(WORDS)}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(WordLevel(words, unk_token="0")),
    unk_token="0",
    bos_token="0",
    eos_token="0",
)
tokenizer.save_pretrained("tokenizer")
