"""What other packages call: importing one of these modules registers pteron there."""
