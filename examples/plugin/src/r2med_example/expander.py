"""Acronyms written out, so that a passage which says `chronic kidney disease` is found by a query that says `CKD`.

The least an expander can be: an object with `expand_query`, from a query's text to the text that goes with it.
"""

from __future__ import annotations

import re

ACRONYMS = {
    "ACE": "angiotensin-converting enzyme",
    "AFP": "alpha-fetoprotein",
    "AKI": "acute kidney injury",
    "ANCA": "antineutrophil cytoplasmic antibody",
    "ARDS": "acute respiratory distress syndrome",
    "BPH": "benign prostatic hyperplasia",
    "BUN": "blood urea nitrogen",
    "CKD": "chronic kidney disease",
    "CLL": "chronic lymphocytic leukemia",
    "CML": "chronic myeloid leukemia",
    "COPD": "chronic obstructive pulmonary disease",
    "CRP": "C-reactive protein",
    "DKA": "diabetic ketoacidosis",
    "DVT": "deep vein thrombosis",
    "ECG": "electrocardiogram",
    "EEG": "electroencephalogram",
    "EKG": "electrocardiogram",
    "ESR": "erythrocyte sedimentation rate",
    "GCS": "Glasgow Coma Scale",
    "GERD": "gastroesophageal reflux disease",
    "HIV": "human immunodeficiency virus",
    "HUS": "hemolytic uremic syndrome",
    "IBD": "inflammatory bowel disease",
    "IBS": "irritable bowel syndrome",
    "ITP": "immune thrombocytopenia",
    "MRI": "magnetic resonance imaging",
    "NSAID": "nonsteroidal anti-inflammatory drug",
    "PCOS": "polycystic ovary syndrome",
    "PTH": "parathyroid hormone",
    "SIADH": "syndrome of inappropriate antidiuretic hormone secretion",
    "SLE": "systemic lupus erythematosus",
    "SSRI": "selective serotonin reuptake inhibitor",
    "STEMI": "ST-elevation myocardial infarction",
    "TIA": "transient ischemic attack",
    "TSH": "thyroid-stimulating hormone",
    "TTP": "thrombotic thrombocytopenic purpura",
    "UTI": "urinary tract infection",
}
"""Only those that mean one thing in most clinical texts: `MS`, `PE` or `CSF` would have to be guessed."""
WORD = re.compile(r"\b([A-Z]{3,5})s?\b")


class Acronyms:
    """Names what the acronyms of a query stand for; a query without any is left as it is."""

    name = "acronyms"

    def expand_query(self, text: str) -> str:
        """The expansions, in order, each once and none that the query has written out itself."""
        found = dict.fromkeys(ACRONYMS[word] for word in WORD.findall(text) if word in ACRONYMS)
        return " ".join(words for words in found if words.casefold() not in text.casefold())
